#include "train/model/moe_layer.h"

#include <numeric>
#include <utility>

#include "train/model/routing_statistics.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

std::string name_of(int64_t layer, const char* part) { return core::cat("decoder.layers.", layer, ".", part); }

// [seq, batch, hidden] -> [tokens, hidden]
core::TensorView as_tokens(const core::TensorView& x) { return x.reshaped({x.dim(0) * x.dim(1), x.dim(2)}); }

}  // namespace

MoeLayer::MoeLayer(RankState& state, ParameterStore& parameters, int64_t layer)
    : state_(state),
      layer_(layer),
      norm_(state, parameters, name_of(layer, "pre_mlp_layernorm.weight"), name_of(layer, "pre_mlp_layernorm.bias")),
      router_(state, parameters, name_of(layer, "mlp.router.")),
      dispatcher_(make_token_dispatcher(state)),
      experts_(state, parameters, name_of(layer, "mlp.experts.local_experts.")) {
  if (state.config.model.moe_shared_expert_intermediate_size == 0) return;
  shared_.emplace(state, parameters, name_of(layer, "mlp.shared_experts."));
}

void MoeLayer::route(const core::TensorView& x, FeedForwardActivations& saved, const SequenceContext& sequence) {
  MoeActivations& moe = saved.moe;
  saved.normed = norm_.forward(x, saved.norm);
  const core::TensorView tokens = as_tokens(saved.normed);
  router_.forward(tokens, moe, sequence);
  dispatcher_->dispatch(tokens, moe);
}

PartialSum MoeLayer::start_forward(const core::TensorView& x, FeedForwardActivations& saved,
                                   const layout::LayerSlots& slots, const core::TensorView* residual,
                                   const SequenceContext& sequence) {
  using enum layout::SavedSlot;
  MoeActivations& moe = saved.moe;
  route(x, saved, sequence);
  core::Tensor of_rows = experts_.forward(moe);
  if (slots.module_drops(kProduct)) moe.product.reset();
  core::Tensor y = dispatcher_->combine(std::move(of_rows), moe);
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
  LayerLoad load{.tokens = saved.sent, .received = saved.rows(), .losses = losses};
  load.dropped = saved.routing.experts.size() - std::accumulate(saved.sent.begin(), saved.sent.end(), int64_t{0});
  load.microbatches = state_.tp_rank() == 0 ? 1 : 0;  // each has a part of the micro-batch, and of its losses
  state_.routing->add(layer_, load);
}

core::Tensor MoeLayer::routed_backward(const core::TensorView& dy, FeedForwardActivations& saved,
                                       const SequenceContext& sequence) {
  MoeActivations& moe = saved.moe;
  const core::TensorView tokens = as_tokens(saved.normed);
  TokenDispatcher::RowGradients of_rows = dispatcher_->dispatch_gradient(as_tokens(dy), moe);
  Experts::Gradients gradients = experts_.backward(std::move(of_rows.rows), of_rows.weights, moe);
  of_rows.weights.reset();
  TokenDispatcher::TokenGradients of_tokens =
      dispatcher_->combine_gradient({std::move(gradients.permuted), std::move(gradients.weights)}, moe);
  const ops::BalanceLosses losses =
      router_.backward(std::move(of_tokens.probs), tokens, moe, saved.normed.dim(1), sequence, of_tokens.tokens);
  count(moe, losses);
  moe.routing = {};
  moe.rows_of_slots.reset();
  moe.all_experts.reset();
  moe.all_probs.reset();
  of_tokens.tokens.reshape(saved.normed.shape());
  return std::move(of_tokens.tokens);
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
