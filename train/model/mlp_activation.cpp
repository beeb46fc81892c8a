#include "train/model/mlp_activation.h"

#include "train/ops/unfused.h"

namespace ms::train {
namespace {

ops::Activation activation_of(const core::TransformerConfig& model) {
  if (model.swiglu) return ops::Activation::kSilu;
  if (model.squared_relu) return ops::Activation::kSquaredRelu;
  if (model.geglu || (!model.gated() && !model.bias_gelu_fusion)) return ops::Activation::kGelu;
  return ops::Activation::kGeluTanh;
}

}  // namespace

MlpActivation::MlpActivation(RankState& state)
    : state_(state),
      activation_(activation_of(state.config.model)),
      gated_(state.config.model.gated()),
      fused_(state.config.training.fuses_swiglu() || !state.config.model.swiglu) {}

core::Tensor MlpActivation::forward(const core::TensorView& fc1) {
  if (!fused_) return ops::unfused::swiglu(state_.ops, fc1);
  return gated_ ? ops::gated_activation(state_.ops, activation_, fc1) : ops::activation(state_.ops, activation_, fc1);
}

core::Tensor MlpActivation::backward(const core::TensorView& dy, core::Tensor fc1) {
  if (!fused_) return ops::unfused::swiglu_backward(state_.ops, dy, std::move(fc1));
  return gated_ ? ops::gated_activation_backward(state_.ops, activation_, dy, std::move(fc1))
                : ops::activation_backward(state_.ops, activation_, dy, std::move(fc1));
}

}  // namespace ms::train
