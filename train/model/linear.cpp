#include "train/model/linear.h"

#include <utility>

#include "train/ops/elementwise.h"
#include "train/ops/linear.h"

namespace ms::train {
namespace {

const core::TensorView* weight_of(const Parameter* parameter) {
  return parameter == nullptr ? nullptr : &parameter->weight;
}

}  // namespace

Linear::Linear(RankState& state, ParameterStore& parameters, const std::string& name)
    : state_(state),
      weight_(parameters.at(name + ".weight")),
      bias_(parameters.find(name + ".bias")),
      precision_(state, weight_) {}

ColumnParallelLinear::ColumnParallelLinear(RankState& state, ParameterStore& parameters, const std::string& name)
    : Linear(state, parameters, name) {}

core::Tensor ColumnParallelLinear::forward(const core::TensorView& x) {
  core::Tensor gathered;
  const core::TensorView full = enter_column_parallel(state_, x, gathered);
  return precision_.forward(full, {.bias = weight_of(bias_)});
}

PartialSum ColumnParallelLinear::start_backward(core::Tensor dy, core::Tensor x, WeightGradients& weights) {
  weights.add(*this, std::move(x), dy.share());
  return start_backward_input(std::move(dy));
}

PartialSum ColumnParallelLinear::start_backward_input(core::Tensor dy) {
  core::Tensor dx = precision_.backward_input(dy);
  return {state_, std::move(dx)};
}

void ColumnParallelLinear::backward_weight(const core::TensorView& x, const core::TensorView& dy) {
  if (weight_.trains()) {
    core::Tensor gathered;  // only this rank's part of the sequence was saved: one more all-gather
    const core::TensorView full = enter_column_parallel(state_, x, gathered);
    precision_.backward_weight(full, dy);
  }
  if (bias_trains()) ops::bias_grad(state_.ops, dy, bias_->main_grad);
}

core::Tensor ColumnParallelLinear::forward_rows(const core::TensorView& x) { return precision_.forward_fp32(x); }

core::Tensor ColumnParallelLinear::backward_rows(const core::TensorView& x, const core::TensorView& dy) {
  if (weight_.trains()) precision_.backward_weight(x, dy);
  return precision_.backward_input(dy);
}

RowParallelLinear::RowParallelLinear(RankState& state, ParameterStore& parameters, const std::string& name)
    : Linear(state, parameters, name) {}

PartialSum RowParallelLinear::start_forward(const core::TensorView& x, const core::TensorView* residual) {
  if (state_.tp_size() == 1) return {precision_.forward(x, {.bias = weight_of(bias_), .residual = residual})};
  return {state_, precision_.forward(x, {})};
}

core::Tensor RowParallelLinear::finish_forward(PartialSum sum, const core::TensorView* residual) {
  ops::Context& ops = state_.ops;
  core::Tensor y = sum.take();
  if (state_.tp_size() == 1) return y;  // the product has added them
  if (bias_ != nullptr) ops::add_bias_inplace(ops, y, bias_->weight);
  if (residual != nullptr) ops::add_inplace(ops, y, *residual);
  return y;
}

core::Tensor RowParallelLinear::backward(core::Tensor& dy, core::Tensor x, WeightGradients& weights) {
  core::Tensor full;
  enter_column_parallel(state_, dy, full);
  if (!full.defined()) full = dy.share();
  weights.add(*this, std::move(x), full.share());
  return backward_input(full);
}

core::Tensor RowParallelLinear::backward_input(const core::TensorView& dy) { return precision_.backward_input(dy); }

void RowParallelLinear::backward_weight(const core::TensorView& x, const core::TensorView& dy) {
  if (weight_.trains()) precision_.backward_weight(x, dy);
  if (!bias_trains()) return;
  // With SP each rank adds up its part of the sequence; the parts are summed as for every replicated parameter.
  const int64_t positions = state_.sequence_parallel() ? dy.dim(0) / state_.tp_size() : dy.dim(0);
  const int64_t first = state_.sequence_parallel() ? state_.tp_rank() * positions : 0;
  ops::bias_grad(state_.ops, dy.rows(first, first + positions), bias_->main_grad);
}

}  // namespace ms::train
