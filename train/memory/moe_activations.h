// What a layer with experts stores between its forward and its backward, besides the norm in front of it
// (FeedForwardActivations::normed).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "core/layout/saved_slots.h"
#include "core/tensor.h"
#include "train/ops/moe_router.h"
#include "train/ops/row_blocks.h"

namespace ms::train {

// How the rows of experts on several ranks have travelled.
struct RowExchange {
  std::vector<int64_t> sent, received;  // rows to and from each rank of the ep group
  std::vector<int64_t> shared;          // rows of each etp rank, if there are several
  std::vector<ops::RowBlock> blocks;    // from the order of the ranks to that of the experts
};

// A tensor between two ranks.
class TensorUnderWay {
 public:
  // Nothing travels: x is the result.
  void keep(core::Tensor x) { target_ = std::move(x); }
  void post(core::Tensor source, core::Tensor target, core::Work work) {
    source_ = std::move(source);
    target_ = std::move(target);
    work_ = std::move(work);
  }
  // The same of a source that its owner keeps.
  void post(core::Tensor target, core::Work work) { post(core::Tensor(), std::move(target), std::move(work)); }
  core::Tensor take() {
    work_.wait();
    source_.reset();
    return std::move(target_);
  }

 private:
  core::Tensor source_, target_;  // before work_: destroyed after it
  core::Work work_;
};

// What the gradients of experts' weights read, until they are computed.
struct ExpertOperands {
  core::Tensor product, dy, dfc1;
};

// What a forward or a backward through the block hands from one of its sub-steps to the next (core/layout/sub_steps.h).
// Each micro-batch has its own: two of them may be in the same layer.
struct MoePass {
  TensorUnderWay rows, weights, choices;  // of the exchange
  TensorUnderWay again;                   // what experts have read, for the backward; beside an exchange
  core::Tensor of_experts;                // what the experts give; in backward, the gradient of what they read
  core::Tensor of_weights;                // backward: the gradient of the rows' weights
  core::Tensor of_shared;                 // the same of shared experts, where it is computed beside an exchange
  core::Tensor dy;                        // backward: the gradient of the block's contribution
  ExpertOperands operands;                // backward: where gradients of weights follow the exchange
  layout::LayerSlots slots;               // forward
  bool drops_all = false;                 // forward: nothing is kept
};

struct MoeActivations {
  core::Tensor logits;         // fp32 [tokens, experts], of the router
  ops::Routing routing;        // [tokens, k]
  std::vector<int64_t> sent;   // tokens of this rank to each expert of the layer, in the order of slots
  int64_t busiest = 0;         // tokens of the busiest expert, of all ranks that exchange rows
  int64_t all_rows = 0;        // of all experts, the same
  core::Tensor rows_of_slots;  // int32 [tokens, k]: the row of each choice; beyond the last one if it was dropped
  RowExchange exchange;        // alltoall dispatcher
  std::vector<int64_t> gathered_tokens;  // allgather dispatcher: of each rank, where they differ; else empty
  core::Tensor all_experts;   // allgather dispatcher: int32 [n, tokens, k], this rank's expert of each choice, if it is
  core::Tensor all_probs;     // fp32 of the same shape: the weights
  std::vector<int64_t> ends;  // of the rows of each expert of this rank
  core::Tensor permuted;      // [rows, hidden]: what the experts read
  core::Tensor fc1;           // [rows, ffn], or [gate | up] of twice that
  core::Tensor product;       // [rows, ffn]: what linear_fc2 reads; undefined if it is recomputed
  core::Tensor shared_fc1;    // of shared experts, [seq, batch, ..]
  core::Tensor shared_product;  // the same; undefined if it is recomputed
  core::Tensor shared_output;   // with a gate: [seq, batch, hidden], which it multiplies
  core::Tensor shared_gate;     // with a gate: fp32 [seq, batch, 1], its value
  MoePass pass;
  // With --moe-experts-pipeline-degree: of each group of experts, what it has of the tokens that chose one of them; the
  // tensors of rows above are empty then.
  std::vector<MoeActivations> groups;

  int64_t rows() const { return ends.empty() ? 0 : ends.back(); }
  // These, or this alone.
  std::span<MoeActivations> parts() { return groups.empty() ? std::span(this, 1) : std::span(groups); }
  std::span<const MoeActivations> parts() const { return groups.empty() ? std::span(this, 1) : std::span(groups); }
};

}  // namespace ms::train
