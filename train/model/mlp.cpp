#include "train/model/mlp.h"

#include "train/ops/linear.h"
#include "train/ops/norm.h"
#include "train/ops/swiglu.h"
#include "train/parallel/mappings.h"

namespace ms::train {

Mlp::Mlp(RankState& state, ParameterStore& parameters, const std::string& prefix)
    : state_(state),
      norm_(parameters.at(prefix + "mlp.linear_fc1.layer_norm_weight")),
      fc1_(parameters.at(prefix + "mlp.linear_fc1.weight")),
      fc2_(parameters.at(prefix + "mlp.linear_fc2.weight")) {}

core::Tensor Mlp::forward(MlpActivations& saved) {
  ops::Context& ops = state_.ops;
  saved.normed = ops::rms_norm(ops, saved.input, norm_.weight, state_.config.model.norm_epsilon, &saved.rstd);
  core::Tensor gathered;
  const core::TensorView full = enter_column_parallel(state_, saved.normed, gathered);
  saved.gate_up = ops::linear(ops, full, fc1_.weight);
  gathered.reset();
  saved.product = ops::swiglu(ops, saved.gate_up);
  return leave_row_parallel(state_, ops::linear(ops, saved.product, fc2_.weight));
}

core::Tensor Mlp::backward(const core::TensorView& dy, const MlpActivations& saved, const core::TensorView& dresidual) {
  ops::Context& ops = state_.ops;
  core::Tensor gathered_dy;
  const core::TensorView full_dy = enter_column_parallel(state_, dy, gathered_dy);
  core::Tensor dproduct = ops::linear_dgrad(ops, full_dy, fc2_.weight);
  ops::linear_wgrad(ops, saved.product, full_dy, fc2_.main_grad);
  gathered_dy.reset();
  core::Tensor dgate_up = ops::swiglu_backward(ops, dproduct, saved.gate_up);
  dproduct.reset();
  core::Tensor gathered;
  const core::TensorView full = enter_column_parallel(state_, saved.normed, gathered);
  core::Tensor dnormed = ops::linear_dgrad(ops, dgate_up, fc1_.weight);
  ops::linear_wgrad(ops, full, dgate_up, fc1_.main_grad);
  dnormed = leave_row_parallel(state_, std::move(dnormed));
  return ops::rms_norm_backward(ops, dnormed, saved.input, norm_.weight, saved.rstd, norm_.main_grad, &dresidual);
}

}  // namespace ms::train
