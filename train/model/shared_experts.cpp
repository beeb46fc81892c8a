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

void SharedExperts::start_forward(const core::TensorView& x, MoeActivations& saved) {
  saved.shared_fc1 = fc1_.forward(x);
  saved.shared_product = activation_.forward(saved.shared_fc1);
}

core::Tensor SharedExperts::finish_forward(const core::TensorView& x, MoeActivations& saved) {
  core::Tensor y = fc2_.forward(saved.shared_product, nullptr);
  if (gate_ == nullptr) return y;
  saved.shared_output = std::move(y);
  fill_gate(x, saved);
  core::Tensor gated = ops::cast(state_.ops, saved.shared_output, saved.shared_output.dtype());
  ops::scale_rows_inplace(state_.ops, gated, saved.shared_gate);
  return gated;
}

void SharedExperts::refill(const core::TensorView& x, MoeActivations& saved) {
  saved.shared_fc1 = fc1_.forward(x);
  if (gate_ == nullptr) return;
  const core::Tensor product = activation_.forward(saved.shared_fc1);
  saved.shared_output = fc2_.forward(product, nullptr);
  fill_gate(x, saved);
}

void SharedExperts::drop(MoeActivations& saved) {
  saved.shared_fc1.reset();
  saved.shared_product.reset();
  saved.shared_output.reset();
  saved.shared_gate.reset();
}

core::Tensor SharedExperts::backward(core::Tensor& dy, core::Tensor x, MoeActivations& saved,
                                     WeightGradients& weights) {
  ops::Context& ops = state_.ops;
  if (!saved.shared_fc1.defined()) refill(x, saved);
  if (!saved.shared_product.defined()) saved.shared_product = activation_.forward(saved.shared_fc1);
  core::Tensor gated;  // the gradient of what the gate multiplies
  core::Tensor dgate;  // of what the gate's sigmoid reads
  if (gate_ != nullptr) {
    dgate = ops::row_dots(ops, dy, saved.shared_output);
    gated = ops::cast(ops, dy, dy.dtype());
    ops::scale_rows_inplace(ops, gated, saved.shared_gate);
    const auto gate = saved.shared_gate.elements<float>(), dargument = dgate.elements<float>();
    for (size_t i = 0; i < gate.size(); ++i) dargument[i] *= gate[i] * (1 - gate[i]);
    dgate.reshape(saved.shared_gate.shape());
    if (gate_->trains()) ops::linear_wgrad(ops, x, dgate, gate_->main_grad, fc1_.precision().weight_gradient_sum());
    saved.shared_output.reset();
    saved.shared_gate.reset();
  }
  core::Tensor dproduct = fc2_.backward(gated.defined() ? gated : dy, std::move(saved.shared_product), weights);
  gated.reset();
  core::Tensor dfc1 = activation_.backward(dproduct, std::move(saved.shared_fc1));
  dproduct.reset();
  core::Tensor dx = fc1_.backward(std::move(dfc1), std::move(x), weights);
  if (gate_ != nullptr) ops::add_inplace(ops, dx, ops::linear_dgrad(ops, dgate, gate_->weight));
  return dx;
}

}  // namespace ms::train
