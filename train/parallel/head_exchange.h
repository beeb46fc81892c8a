// The all-to-all of Ulysses (Jacobs et al. 2023; deepspeed/sequence/layer.py): ranks that have some
// positions of all heads of [seq, batch, heads, d] receive all positions of some heads, and the reverse. Rows of all
// ranks stand one behind the other or, where each rank has a part from the front and one from the back
// (layout::is_zigzag), in the order of positions, into which the all-to-all puts them: without a copy.
#pragma once

#include <cstdint>

#include "core/comm/communicator.h"
#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::train {

class HeadExchange {
 public:
  // Both outlive it. order: of all rows.
  HeadExchange(ops::Context& ops, core::Communicator& ranks, core::BlockOrder order)
      : ops_(ops), ranks_(ranks), order_(order) {}
  int64_t ranks() const { return ranks_.size(); }

  // A tensor on its way.
  class Exchange {
   public:
    Exchange() = default;
    // Waits, and gives back what was sent.
    void finish();
    // What arrived, after finish().
    core::Tensor take() { return std::move(received_); }

   private:
    friend class HeadExchange;
    core::Tensor sent_, received_;
    core::Work work_;  // behind them: destroyed before
  };

  // x [seq / ranks, batch, heads, d] -> [seq, batch, heads * copies / ranks, d]: this rank's part of the heads, each of
  // which counts `copies` times. x is given back.
  Exchange to_heads(core::Tensor x, int64_t copies);
  // The same of one head, which all ranks need: x [seq / ranks, batch, 1, d] -> what take_gathered() makes
  // [seq, batch, 1, d] of.
  Exchange gather(core::Tensor x);
  core::Tensor take_gathered(Exchange& exchange);
  // Adds gradients of gathered rows over the ranks: each has those of its own, x's shape in gather().
  Exchange scatter(core::Tensor x);
  // x [seq, batch, heads * copies / ranks, d] -> what take_rows() makes [seq / ranks, batch, heads, d] of.
  Exchange to_rows(core::Tensor x);
  // Copies of a head are added.
  core::Tensor take_rows(Exchange& exchange, int64_t copies);

 private:
  Exchange post(core::Tensor x, core::BlockOrder order, core::BlockOrder received_order);

  ops::Context& ops_;
  core::Communicator& ranks_;
  core::BlockOrder order_;
};

}  // namespace ms::train
