#include "train/model/moe_layer.h"

#include <utility>

#include "train/model/routing_statistics.h"
#include "train/ops/elementwise.h"
#include "train/ops/grouped_matmul.h"
#include "train/ops/token_permute.h"

namespace ms::train {
namespace {

std::string name_of(int64_t layer, const char* part) { return core::cat("decoder.layers.", layer, ".", part); }

// [seq, batch, hidden] -> [tokens, hidden]
core::TensorView as_tokens(const core::TensorView& x) { return x.reshaped({x.dim(0) * x.dim(1), x.dim(2)}); }

// The weight of each row: of the choice that it was made for.
core::Tensor weights_of_rows(ops::Context& ops, const MoeActivations& saved) {
  core::Tensor weights(ops.arena, core::DType::kFp32, {saved.ends.back()}, core::MemoryTag::kAct);
  const auto rows = saved.rows_of_slots.elements<int32_t>();
  const auto probs = saved.routing.probs.elements<float>();
  for (size_t slot = 0; slot < rows.size(); ++slot) {
    if (rows[slot] < saved.ends.back()) weights.elements<float>()[static_cast<size_t>(rows[slot])] = probs[slot];
  }
  return weights;
}

// The other way: of each row -> of each choice, 0 where it was dropped.
core::Tensor of_slots(ops::Context& ops, const MoeActivations& saved, const core::TensorView& of_rows) {
  core::Tensor result(ops.arena, core::DType::kFp32, saved.routing.probs.shape(), core::MemoryTag::kAct);
  const auto rows = saved.rows_of_slots.elements<int32_t>();
  for (size_t slot = 0; slot < rows.size(); ++slot) {
    const bool kept = rows[slot] < saved.ends.back();
    result.elements<float>()[slot] = kept ? of_rows.elements<float>()[static_cast<size_t>(rows[slot])] : 0;
  }
  return result;
}

}  // namespace

MoeLayer::MoeLayer(RankState& state, ParameterStore& parameters, int64_t layer)
    : state_(state),
      layer_(layer),
      norm_(state, parameters, name_of(layer, "pre_mlp_layernorm.weight"), name_of(layer, "pre_mlp_layernorm.bias")),
      router_(state, parameters, name_of(layer, "mlp.router.weight")),
      experts_(state, parameters, name_of(layer, "mlp.experts.local_experts.")) {
  if (state.config.model.moe_shared_expert_intermediate_size == 0) return;
  shared_.emplace(state, parameters, name_of(layer, "mlp.shared_experts."));
}

void MoeLayer::route(const core::TensorView& x, FeedForwardActivations& saved, const SequenceContext& sequence) {
  MoeActivations& moe = saved.moe;
  saved.normed = norm_.forward(x, saved.norm);
  const core::TensorView tokens = as_tokens(saved.normed);
  router_.forward(tokens, moe, sequence);
  moe.ends = ops::group_ends(ops::tokens_per_expert(moe.routing.sent_to(), router_.num_experts()));
  ops::PermutedTokens permuted = ops::token_permute(state_.ops, tokens, moe.routing.sent_to(), moe.ends.back());
  moe.permuted = std::move(permuted.tokens);
  moe.rows_of_slots = std::move(permuted.sorted_indices);
}

PartialSum MoeLayer::start_forward(const core::TensorView& x, FeedForwardActivations& saved,
                                   const layout::LayerSlots& slots, const core::TensorView* residual,
                                   const SequenceContext& sequence) {
  using enum layout::SavedSlot;
  MoeActivations& moe = saved.moe;
  route(x, saved, sequence);
  core::Tensor of_rows = experts_.forward(moe);
  if (slots.module_drops(kProduct)) moe.product.reset();
  core::Tensor y =
      ops::token_unpermute(state_.ops, of_rows, moe.rows_of_slots, &moe.routing.probs.view(), x.dim(0) * x.dim(1));
  of_rows.reset();
  y.reshape(x.shape());
  if (shared_) y = shared_->forward(saved.normed, std::move(y), moe);
  if (slots.module_drops(kProduct)) moe.shared_product.reset();
  if (residual != nullptr) ops::add_inplace(state_.ops, y, *residual);
  if (slots.module_drops(kPostAttentionNorm)) saved.normed.reset();
  return {std::move(y)};
}

core::Tensor MoeLayer::finish_forward(PartialSum sum, FeedForwardActivations&, const core::TensorView*) {
  return sum.take();
}

void MoeLayer::refill(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots&,
                      const SequenceContext& sequence) {
  route(x, saved, sequence);
  experts_.refill(saved.moe);
  if (shared_) shared_->refill(saved.normed, saved.moe);
}

void MoeLayer::count(const MoeActivations& saved, const ops::BalanceLosses& losses) {
  if (state_.routing == nullptr) return;
  std::vector<int64_t> tokens(saved.ends);
  for (size_t e = tokens.size(); e-- > 1;) tokens[e] -= tokens[e - 1];
  state_.routing->add(layer_, tokens, saved.rows_of_slots.size() - saved.ends.back(), losses);
}

core::Tensor MoeLayer::routed_backward(const core::TensorView& dy, FeedForwardActivations& saved,
                                       const SequenceContext& sequence) {
  ops::Context& ops = state_.ops;
  MoeActivations& moe = saved.moe;
  const core::TensorView tokens = as_tokens(saved.normed);
  core::Tensor weights = weights_of_rows(ops, moe);
  core::Tensor drows = ops::token_permute(ops, as_tokens(dy), moe.routing.sent_to(), moe.ends.back()).tokens;
  Experts::Gradients gradients = experts_.backward(std::move(drows), weights, moe);
  weights.reset();
  core::Tensor dtokens = ops::token_permute_backward(ops, gradients.permuted, moe.rows_of_slots, tokens.dim(0));
  gradients.permuted.reset();
  core::Tensor dprobs = of_slots(ops, moe, gradients.weights);
  gradients.weights.reset();
  const ops::BalanceLosses losses =
      router_.backward(std::move(dprobs), tokens, moe, saved.normed.dim(1), sequence, dtokens);
  count(moe, losses);
  moe.rows_of_slots.reset();
  dtokens.reshape(saved.normed.shape());
  return dtokens;
}

PartialSum MoeLayer::start_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                                    const SequenceContext& sequence, WeightGradients& weights) {
  norm_.recompute(x, saved.normed);
  core::Tensor dnormed = routed_backward(dy, saved, sequence);
  if (shared_) shared_->backward(dy, saved.normed.share(), saved.moe, dnormed, weights);
  saved.normed.reset();
  return {std::move(dnormed)};
}

core::Tensor MoeLayer::finish_backward(PartialSum sum, const core::TensorView& x, FeedForwardActivations& saved,
                                       const core::TensorView& dresidual) {
  const core::Tensor dnormed = sum.take();
  return norm_.backward(dnormed, x, saved.norm, &dresidual);
}

}  // namespace ms::train
