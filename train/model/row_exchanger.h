// Rows on their way between ranks that together have experts of a layer: each goes to the rank that has its expert, and
// what the expert gives comes back. Ranks that share an expert gather each other's rows, and add up what they give.
#pragma once

#include <cstdint>
#include <vector>

#include "core/comm/communicator.h"
#include "core/tensor.h"
#include "train/memory/moe_activations.h"
#include "train/ops/context.h"

namespace ms::train {

// The ranks, numbered etp fastest, and their experts, in equal blocks of the ep ranks.
struct RanksOfExperts {
  core::Communicator& all;
  core::Communicator* ep = nullptr;   // null: one
  core::Communicator* etp = nullptr;  // which share each expert; null: one
  int at_ep = 0, at_etp = 0;          // of this rank
  int64_t first_expert = 0, experts_each = 0;

  int num_ep() const { return ep == nullptr ? 1 : ep->size(); }
  int num_etp() const { return etp == nullptr ? 1 : etp->size(); }
};

// Counts of rows as counts of elements of rows of x.
std::vector<int64_t> elements_of(const std::vector<int64_t>& rows, const core::TensorView& x);

class RowExchanger {
 public:
  RowExchanger(ops::Context& ops, const RanksOfExperts& ranks) : ops_(ops), ranks_(ranks) {}

  // counts: of each expert of the layer, the rows that this rank has for it. All ranks tell each other: who sends how
  // many to whom, and where the experts here find theirs (saved.exchange, saved.ends, saved.busiest).
  void plan(std::vector<int64_t> counts, MoeActivations& saved);

  // x: rows that this rank sends, sorted by expert, [rows, ..] or [rows] -> rows of the experts here. The first posts,
  // the second waits.
  void post_to_experts(TensorUnderWay& way, core::Tensor x, const RowExchange& exchange);
  core::Tensor take_at_experts(TensorUnderWay& way, const RowExchange& exchange);
  // The way back: what the etp ranks have is added up.
  void post_from_experts(TensorUnderWay& way, core::Tensor x, const RowExchange& exchange);
  core::Tensor take_from_experts(TensorUnderWay& way, const RowExchange& exchange);

 private:
  core::Tensor rows_like(const core::TensorView& x, int64_t rows);
  core::Work post_alltoall(const core::TensorView& x, const std::vector<int64_t>& from, const core::TensorView& y,
                           const std::vector<int64_t>& to);
  void share(TensorUnderWay& way, core::Tensor x, const RowExchange& exchange);
  void send_back(TensorUnderWay& way, core::Tensor x, const RowExchange& exchange);

  ops::Context& ops_;
  RanksOfExperts ranks_;
};

}  // namespace ms::train
