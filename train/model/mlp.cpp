#include "train/model/mlp.h"

#include "core/error.h"
#include "train/ops/elementwise.h"
#include "train/ops/unfused.h"

namespace ms::train {
namespace {

std::string mlp_prefix(int64_t layer) { return core::cat("decoder.layers.", layer, ".mlp."); }

ops::Activation activation_of(const core::TransformerConfig& model) {
  if (model.swiglu) return ops::Activation::kSilu;
  if (model.squared_relu) return ops::Activation::kSquaredRelu;
  if (model.geglu || (!model.gated() && !model.bias_gelu_fusion)) return ops::Activation::kGelu;
  return ops::Activation::kGeluTanh;
}

}  // namespace

Mlp::Mlp(RankState& state, ParameterStore& parameters, int64_t layer)
    : state_(state),
      name_(mlp_prefix(layer)),
      norm_(state, parameters, mlp_prefix(layer) + "linear_fc1.layer_norm_weight",
            mlp_prefix(layer) + "linear_fc1.layer_norm_bias"),
      fc1_(state, parameters, mlp_prefix(layer) + "linear_fc1"),
      fc2_(state, parameters, mlp_prefix(layer) + "linear_fc2"),
      post_norm_(optional_norm(state.config.model.post_norm, state, parameters,
                               core::cat("decoder.layers.", layer, ".post_mlp_layernorm"))),
      activation_(activation_of(state.config.model)),
      gated_(state.config.model.gated()),
      fused_(state.config.training.fuses_swiglu() || !state.config.model.swiglu) {}

TensorRecorder::Split Mlp::fc1_columns() const {
  return gated_ ? TensorRecorder::Split::kGatedColumns : TensorRecorder::Split::kColumns;
}

core::Tensor Mlp::activated(const core::TensorView& fc1) {
  if (!fused_) return ops::unfused::swiglu(state_.ops, fc1);
  return gated_ ? ops::gated_activation(state_.ops, activation_, fc1) : ops::activation(state_.ops, activation_, fc1);
}

core::Tensor Mlp::activated_backward(const core::TensorView& dy, core::Tensor fc1) {
  if (!fused_) return ops::unfused::swiglu_backward(state_.ops, dy, std::move(fc1));
  return gated_ ? ops::gated_activation_backward(state_.ops, activation_, dy, std::move(fc1))
                : ops::activation_backward(state_.ops, activation_, dy, std::move(fc1));
}

PartialSum Mlp::start_forward(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                              const core::TensorView* residual) {
  using enum layout::SavedSlot;
  saved.normed = norm_.forward(x, saved.norm);
  saved.fc1 = fc1_.forward(saved.normed);
  record_output(state_, name_, "linear_fc1", saved.fc1, fc1_columns());
  if (slots.module_drops(kPostAttentionNorm)) saved.normed.reset();
  saved.product = activated(saved.fc1);
  if (slots.module_drops(kFc1)) saved.fc1.reset();
  PartialSum sum = fc2_.start_forward(saved.product, post_norm_ ? nullptr : residual);
  if (slots.module_drops(kProduct)) saved.product.reset();
  return sum;
}

core::Tensor Mlp::finish_forward(PartialSum sum, FeedForwardActivations& saved, const core::TensorView* residual) {
  core::Tensor branch = fc2_.finish_forward(std::move(sum), post_norm_ ? nullptr : residual);
  if (!post_norm_) return branch;
  saved.branch = std::move(branch);
  core::Tensor normed = post_norm_->forward(saved.branch, saved.post_norm);
  if (residual != nullptr) ops::add_inplace(state_.ops, normed, *residual);
  return normed;
}

void Mlp::refill(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots) {
  if (post_norm_) {  // whose backward reads what linear_fc2 gives
    forward(x, saved, slots, nullptr);
    return;
  }
  saved.normed = norm_.forward(x, saved.norm);
  saved.fc1 = fc1_.forward(saved.normed);
}

PartialSum Mlp::start_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                               WeightGradients& weights) {
  core::Tensor dbranch;
  if (post_norm_) dbranch = post_norm_->backward(dy, saved.branch, saved.post_norm);
  if (!saved.fc1.defined()) {
    norm_.recompute(x, saved.normed);
    saved.fc1 = fc1_.forward(saved.normed);
  }
  if (!saved.product.defined()) saved.product = activated(saved.fc1);
  core::Tensor dproduct = fc2_.backward(post_norm_ ? dbranch : dy, std::move(saved.product), weights);
  dbranch.reset();
  core::Tensor dfc1 = activated_backward(dproduct, std::move(saved.fc1));
  dproduct.reset();
  record_gradient(state_, name_, "linear_fc1", dfc1, fc1_columns());
  norm_.recompute(x, saved.normed);
  return fc1_.start_backward(std::move(dfc1), std::move(saved.normed), weights);
}

core::Tensor Mlp::finish_backward(PartialSum sum, const core::TensorView& x, FeedForwardActivations& saved,
                                  const core::TensorView& dresidual) {
  const core::Tensor dnormed = sum.take();
  return norm_.backward(dnormed, x, saved.norm, &dresidual);
}

}  // namespace ms::train
