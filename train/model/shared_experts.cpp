#include "train/model/shared_experts.h"

#include <cmath>
#include <utility>

#include "train/ops/elementwise.h"
#include "train/ops/linear.h"
#include "train/ops/row_scale.h"

namespace ms::train {

SharedExperts::SharedExperts(RankState& state, ParameterStore& parameters, const std::string& name)
    : state_(state),
      fc1_(state, parameters, name + "linear_fc1"),
      fc2_(state, parameters, name + "linear_fc2"),
      gate_(parameters.find(name + "gate_weight")),
      activation_(state) {}

// sigmoid(x * gate^T)
void SharedExperts::fill_gate(const core::TensorView& x, MoeActivations& saved) {
  saved.shared_gate = ops::linear_fp32(state_.ops, x, gate_->weight);
  for (float& gate : saved.shared_gate.elements<float>()) gate = 1 / (1 + std::exp(-gate));
}

core::Tensor SharedExperts::forward(const core::TensorView& x, core::Tensor y, MoeActivations& saved) {
  saved.shared_fc1 = fc1_.forward(x);
  saved.shared_product = activation_.forward(saved.shared_fc1);
  core::Tensor sum;
  if (gate_ == nullptr) {
    sum = fc2_.forward(saved.shared_product, &y.view());
  } else {
    saved.shared_output = fc2_.forward(saved.shared_product, nullptr);
    fill_gate(x, saved);
    sum = ops::cast(state_.ops, saved.shared_output, y.dtype());
    ops::scale_rows_inplace(state_.ops, sum, saved.shared_gate);
    ops::add_inplace(state_.ops, sum, y);
  }
  return sum;
}

void SharedExperts::refill(const core::TensorView& x, MoeActivations& saved) {
  saved.shared_fc1 = fc1_.forward(x);
  if (gate_ == nullptr) return;
  const core::Tensor product = activation_.forward(saved.shared_fc1);
  saved.shared_output = fc2_.forward(product, nullptr);
  fill_gate(x, saved);
}

void SharedExperts::backward(core::Tensor& dy, core::Tensor x, MoeActivations& saved, const core::TensorView& dx,
                             WeightGradients& weights) {
  ops::Context& ops = state_.ops;
  if (!saved.shared_product.defined()) saved.shared_product = activation_.forward(saved.shared_fc1);
  core::Tensor gated;  // the gradient of what the gate multiplies
  if (gate_ != nullptr) {
    const core::Tensor dgate = ops::row_dots(ops, dy, saved.shared_output);
    gated = ops::cast(ops, dy, dy.dtype());
    ops::scale_rows_inplace(ops, gated, saved.shared_gate);
    const auto gate = saved.shared_gate.elements<float>(), dargument = dgate.elements<float>();
    for (size_t i = 0; i < gate.size(); ++i) dargument[i] *= gate[i] * (1 - gate[i]);
    const core::TensorView column = dgate.view().reshaped(saved.shared_gate.shape());
    if (gate_->trains()) ops::linear_wgrad(ops, x, column, gate_->main_grad, fc1_.precision().weight_gradient_sum());
    ops::add_inplace(ops, dx, ops::linear_dgrad(ops, column, gate_->weight));
    saved.shared_output.reset();
    saved.shared_gate.reset();
  }
  core::Tensor dproduct = fc2_.backward(gated.defined() ? gated : dy, std::move(saved.shared_product), weights);
  gated.reset();
  core::Tensor dfc1 = activation_.backward(dproduct, std::move(saved.shared_fc1));
  dproduct.reset();
  ops::add_inplace(ops, dx, fc1_.backward(std::move(dfc1), std::move(x), weights));
}

}  // namespace ms::train
