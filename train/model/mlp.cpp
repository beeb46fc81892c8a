#include "train/model/mlp.h"

#include "core/error.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

std::string mlp_prefix(const RankState& state, int64_t layer) {
  return layout::layer_name(state.config.model, layer) + ".mlp.";
}

}  // namespace

Mlp::Mlp(RankState& state, ParameterStore& parameters, int64_t layer)
    : state_(state),
      name_(mlp_prefix(state, layer)),
      norm_(state, parameters, mlp_prefix(state, layer) + "linear_fc1.layer_norm_weight",
            mlp_prefix(state, layer) + "linear_fc1.layer_norm_bias"),
      fc1_(state, parameters, mlp_prefix(state, layer) + "linear_fc1"),
      fc2_(state, parameters, mlp_prefix(state, layer) + "linear_fc2"),
      post_norm_(optional_norm(state.config.model.post_norm, state, parameters,
                               layout::layer_name(state.config.model, layer) + ".post_mlp_layernorm")),
      activation_(state) {}

TensorRecorder::Split Mlp::fc1_columns() const {
  return activation_.gated() ? TensorRecorder::Split::kGatedColumns : TensorRecorder::Split::kColumns;
}

PartialSum Mlp::start_forward(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                              const core::TensorView* residual, const SequenceContext&) {
  using enum layout::SavedSlot;
  saved.normed = norm_.forward(x, saved.norm);
  saved.fc1 = fc1_.forward(saved.normed);
  record_output(state_, name_, "linear_fc1", saved.fc1, fc1_columns());
  if (slots.module_drops(kPostAttentionNorm)) saved.normed.reset();
  saved.product = activation_.forward(saved.fc1);
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

void Mlp::refill(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                 const SequenceContext& sequence) {
  if (post_norm_) {  // whose backward reads what linear_fc2 gives
    forward(x, saved, slots, nullptr, sequence);
    return;
  }
  saved.normed = norm_.forward(x, saved.norm);
  saved.fc1 = fc1_.forward(saved.normed);
}

PartialSum Mlp::start_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                               const SequenceContext&, WeightGradients& weights) {
  core::Tensor dbranch;
  if (post_norm_) dbranch = post_norm_->backward(dy, saved.branch, saved.post_norm);
  if (!saved.fc1.defined()) {
    norm_.recompute(x, saved.normed);
    saved.fc1 = fc1_.forward(saved.normed);
  }
  if (!saved.product.defined()) saved.product = activation_.forward(saved.fc1);
  core::Tensor dproduct = fc2_.backward(post_norm_ ? dbranch : dy, std::move(saved.product), weights);
  dbranch.reset();
  core::Tensor dfc1 = activation_.backward(dproduct, std::move(saved.fc1));
  dproduct.reset();
  record_gradient(state_, name_, "linear_fc1", dfc1, fc1_columns());
  norm_.recompute(x, saved.normed);
  return fc1_.start_backward(std::move(dfc1), std::move(saved.normed), weights);
}

core::Tensor Mlp::finish_backward(PartialSum sum, const core::TensorView& x, FeedForwardActivations& saved,
                                  const core::TensorView& dresidual, const SequenceContext&, WeightGradients&) {
  return norm_.backward_over(sum.take(), x, saved.norm, &dresidual);
}

}  // namespace ms::train
