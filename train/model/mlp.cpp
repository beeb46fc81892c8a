#include "train/model/mlp.h"

#include "core/error.h"
#include "train/model/row_parallel_linear.h"
#include "train/ops/elementwise.h"
#include "train/ops/linear.h"
#include "train/parallel/mappings.h"

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

Mlp::Mlp(RankState& state, ParameterStore& parameters, int64_t layer, const layout::RecomputedOutputs& recomputed)
    : state_(state),
      norm_(state, parameters, mlp_prefix(layer) + "linear_fc1.layer_norm_weight",
            mlp_prefix(layer) + "linear_fc1.layer_norm_bias"),
      fc1_(parameters.at(mlp_prefix(layer) + "linear_fc1.weight")),
      fc1_bias_(parameters.find(mlp_prefix(layer) + "linear_fc1.bias")),
      fc2_(parameters.at(mlp_prefix(layer) + "linear_fc2.weight")),
      fc2_bias_(parameters.find(mlp_prefix(layer) + "linear_fc2.bias")),
      post_norm_(optional_norm(state.config.model.post_norm, state, parameters,
                               core::cat("decoder.layers.", layer, ".post_mlp_layernorm"))),
      activation_(activation_of(state.config.model)),
      gated_(state.config.model.gated()),
      recomputed_(recomputed) {}

core::Tensor Mlp::activated(const core::TensorView& fc1) {
  return gated_ ? ops::gated_activation(state_.ops, activation_, fc1) : ops::activation(state_.ops, activation_, fc1);
}

// What linear_fc1 gives of saved.normed.
void Mlp::fill_fc1(MlpActivations& saved) {
  core::Tensor gathered;
  const core::TensorView full = enter_column_parallel(state_, saved.normed, gathered);
  saved.fc1 = ops::linear(state_.ops, full, fc1_.weight, {.bias = weight_of(fc1_bias_)}, fc1_.packed.get());
}

core::Tensor Mlp::forward(MlpActivations& saved, const core::TensorView* residual) {
  ops::Context& ops = state_.ops;
  saved.normed = norm_.forward(saved.input, saved.norm);
  fill_fc1(saved);
  if (recomputed_.norms || recomputed_.mlp) saved.normed.reset();
  saved.product = activated(saved.fc1);
  if (recomputed_.mlp) saved.fc1.reset();
  core::Tensor branch = row_parallel_linear(state_, saved.product, fc2_, fc2_bias_, post_norm_ ? nullptr : residual);
  if (recomputed_.activation || recomputed_.mlp) saved.product.reset();
  if (!post_norm_) return branch;
  saved.branch = std::move(branch);
  core::Tensor normed = post_norm_->forward(saved.branch, saved.post_norm);
  if (residual != nullptr) ops::add_inplace(ops, normed, *residual);
  return normed;
}

void Mlp::refill(MlpActivations& saved) {
  if (post_norm_) {  // whose backward reads what linear_fc2 gives
    forward(saved, nullptr);
    return;
  }
  saved.normed = norm_.forward(saved.input, saved.norm);
  fill_fc1(saved);
}

// -> gradient of the activation's result, [seq, batch, ffn / tp].
core::Tensor Mlp::backward_fc2(const core::TensorView& dy, MlpActivations& saved) {
  ops::Context& ops = state_.ops;
  if (fc2_bias_ != nullptr) ops::bias_grad(ops, dy, fc2_bias_->main_grad);
  core::Tensor gathered;
  const core::TensorView full = enter_column_parallel(state_, dy, gathered);
  if (!saved.product.defined()) saved.product = activated(saved.fc1);
  ops::linear_wgrad(ops, saved.product, full, fc2_.main_grad);
  saved.product.reset();
  return ops::linear_dgrad(ops, full, fc2_.weight, fc2_.packed.get());
}

// -> gradient of what linear_fc1 read, [seq', batch, hidden].
core::Tensor Mlp::backward_fc1(core::Tensor dfc1, MlpActivations& saved) {
  ops::Context& ops = state_.ops;
  norm_.recompute(saved.input, saved.normed);
  core::Tensor gathered;
  const core::TensorView full = enter_column_parallel(state_, saved.normed, gathered);
  ops::linear_wgrad(ops, full, dfc1, fc1_.main_grad);
  gathered.reset();
  saved.normed.reset();
  if (fc1_bias_ != nullptr) ops::bias_grad(ops, dfc1, fc1_bias_->main_grad);
  core::Tensor dnormed = ops::linear_dgrad(ops, dfc1, fc1_.weight, fc1_.packed.get());
  dfc1.reset();
  return leave_row_parallel(state_, std::move(dnormed));
}

core::Tensor Mlp::backward(const core::TensorView& dy, MlpActivations& saved, const core::TensorView& dresidual) {
  ops::Context& ops = state_.ops;
  core::Tensor dbranch;
  if (post_norm_) dbranch = post_norm_->backward(dy, saved.branch, saved.post_norm);
  if (!saved.fc1.defined()) {
    norm_.recompute(saved.input, saved.normed);
    fill_fc1(saved);
  }
  core::Tensor dproduct = backward_fc2(post_norm_ ? dbranch.view() : dy, saved);
  dbranch.reset();
  core::Tensor dfc1 = gated_ ? ops::gated_activation_backward(ops, activation_, dproduct, std::move(saved.fc1))
                             : ops::activation_backward(ops, activation_, dproduct, std::move(saved.fc1));
  dproduct.reset();
  const core::Tensor dnormed = backward_fc1(std::move(dfc1), saved);
  return norm_.backward(dnormed, saved.input, saved.norm, &dresidual);
}

}  // namespace ms::train
