#include "train/model/row_parallel_linear.h"

#include "train/ops/elementwise.h"
#include "train/ops/linear.h"
#include "train/parallel/mappings.h"

namespace ms::train {

core::Tensor row_parallel_linear(RankState& state, const core::TensorView& x, const Parameter& weight,
                                 const Parameter* bias, const core::TensorView* residual) {
  ops::Context& ops = state.ops;
  if (state.tp_size() == 1) {
    return ops::linear(ops, x, weight.weight, {.bias = weight_of(bias), .residual = residual}, weight.packed.get());
  }
  core::Tensor y = leave_row_parallel(state, ops::linear(ops, x, weight.weight, {}, weight.packed.get()));
  if (bias != nullptr) ops::add_bias_inplace(ops, y, bias->weight);
  if (residual != nullptr) ops::add_inplace(ops, y, *residual);
  return y;
}

}  // namespace ms::train
