// The communication of tensor and sequence parallelism before and after a pair of linear layers
// (megatron/core/tensor_parallel/mappings.py). Without TP every function returns its input.
//
// hidden is [seq, batch, hidden]; with sequence parallelism the regions outside the pair hold [seq / tp, batch,
// hidden].
#pragma once

#include <utility>

#include "core/tensor.h"
#include "train/rank_state.h"

namespace ms::train {

// Into a column-parallel layer: all-gathers the sequence with SP (result in `gathered`, tag act), else returns x.
core::TensorView enter_column_parallel(RankState& state, const core::TensorView& x, core::Tensor& gathered);

// Out of a row-parallel layer (and, in backward, out of a column-parallel one): partial sums over TP become the sum:
// reduce-scattered along the sequence with SP, else all-reduced in place.
core::Tensor leave_row_parallel(RankState& state, core::Tensor partial);

// The same in two halves, between which something else can be computed.
class PartialSum {
 public:
  PartialSum() = default;
  PartialSum(core::Tensor whole) : partial_(std::move(whole)) {}  // without TP: there is nothing to sum
  PartialSum(RankState& state, core::Tensor partial) : state_(&state), partial_(std::move(partial)) {}

  // Posts the reduction; it is under way until take().
  void start();
  // The sum; start()s and waits, if need be. Once.
  core::Tensor take();

 private:
  RankState* state_ = nullptr;   // null: nothing to sum
  core::Tensor partial_, part_;  // part_: with SP. Before work_: destroyed after it
  core::Work work_;
  bool is_started_ = false;
};

}  // namespace ms::train
