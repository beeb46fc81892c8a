// The all-to-all of Ulysses (Jacobs et al. 2023; deepspeed/sequence/layer.py): ranks that have some
// positions of all heads of [seq, batch, heads, d] receive all positions of some heads, and the reverse. Positions
// stand in the order of the ranks.
#pragma once

#include <cstdint>

#include "core/comm/communicator.h"
#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::train {

class HeadExchange {
 public:
  // Both outlive it.
  HeadExchange(ops::Context& ops, core::Communicator& ranks) : ops_(ops), ranks_(ranks) {}
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
  // The same of one head, which all ranks need: x [seq / ranks, batch, 1, d] -> [seq, batch, 1, d].
  Exchange gather(core::Tensor x);
  // Adds gradients of gathered rows over the ranks: each has those of its own, x's shape in gather().
  Exchange scatter(core::Tensor x);
  // x [seq, batch, heads * copies / ranks, d] -> what take_rows() makes [seq / ranks, batch, heads, d] of.
  Exchange to_rows(core::Tensor x);
  // Copies of a head are added.
  core::Tensor take_rows(Exchange& exchange, int64_t copies);

 private:
  Exchange post(core::Tensor x);

  ops::Context& ops_;
  core::Communicator& ranks_;
};

}  // namespace ms::train
