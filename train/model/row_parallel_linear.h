// The row-parallel linear layer at the end of an attention or MLP block, with its communication, bias and residual.
#pragma once

#include "core/tensor.h"
#include "train/model/parameters.h"
#include "train/rank_state.h"

namespace ms::train {

// As an operator takes an optional parameter.
inline const core::TensorView* weight_of(const Parameter* parameter) {
  return parameter == nullptr ? nullptr : &parameter->weight;
}

// x [.., in / tp] * weight^T, summed over TP and brought to the region behind (leave_row_parallel), + bias + residual,
// each unless it is null; residual: of the result's shape. Without TP one product does all.
core::Tensor row_parallel_linear(RankState& state, const core::TensorView& x, const Parameter& weight,
                                 const Parameter* bias, const core::TensorView* residual);

}  // namespace ms::train
