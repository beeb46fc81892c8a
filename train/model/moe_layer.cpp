#include "train/model/moe_layer.h"

#include <numeric>
#include <utility>

#include "train/features/expert_parallel.h"
#include "train/model/routing_statistics.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

std::string name_of(const RankState& state, int64_t layer, const char* part) {
  return core::cat(layout::layer_name(state.config.model, layer), ".", part);
}

// [seq, batch, hidden] -> [tokens, hidden]
core::TensorView as_tokens(const core::TensorView& x) { return x.reshaped({x.dim(0) * x.dim(1), x.dim(2)}); }

}  // namespace

MoeLayer::MoeLayer(RankState& state, ParameterStore& parameters, int64_t layer)
    : state_(state),
      layer_(layer),
      overlap_(expert_overlap(state.config)),
      norm_(state, parameters, name_of(state, layer, "pre_mlp_layernorm.weight"),
            name_of(state, layer, "pre_mlp_layernorm.bias")),
      router_(state, parameters, layer),
      dispatcher_(make_token_dispatcher(state)),
      experts_(state, parameters, name_of(state, layer, "mlp.experts.local_experts.")) {
  if (state.config.model.moe_shared_expert_intermediate_size == 0) return;
  shared_.emplace(state, parameters, name_of(state, layer, "mlp.shared_experts."));
}

void MoeLayer::start_route(const core::TensorView& x, FeedForwardActivations& saved, const SequenceContext& sequence) {
  MoeActivations& moe = saved.moe;
  saved.normed = norm_.forward(x, saved.norm);
  const core::TensorView tokens = as_tokens(saved.normed);
  router_.forward(tokens, moe, sequence);
  dispatcher_->start_dispatch(tokens, moe);
}

PartialSum MoeLayer::start_forward(const core::TensorView& x, FeedForwardActivations& saved,
                                   const layout::LayerSlots& slots, const core::TensorView* residual,
                                   const SequenceContext& sequence) {
  using enum layout::SavedSlot;
  MoeActivations& moe = saved.moe;
  const bool overlaps = shared_ && overlap_.shared_experts;
  core::Tensor of_shared;
  start_route(x, saved, sequence);
  if (overlaps) shared_->start_forward(saved.normed, moe);
  dispatcher_->finish_dispatch(moe);
  const bool drops_all = is_uneven(moe, sequence) || slots.module_drops(kRouting);
  core::Tensor of_rows = experts_.forward(moe, slots);
  dispatcher_->start_combine(std::move(of_rows), moe);
  if (overlaps) of_shared = shared_->finish_forward(saved.normed, moe);
  core::Tensor y = dispatcher_->finish_combine(moe);
  y.reshape(x.shape());
  if (shared_) {
    if (!overlaps) of_shared = shared_->forward(saved.normed, moe);
    ops::add_inplace(state_.ops, y, of_shared);
    of_shared.reset();
  }
  if (slots.module_drops(kProduct)) moe.shared_product.reset();
  if (slots.module_drops(kShared)) SharedExperts::drop(moe);
  if (drops_all) moe = {};
  if (residual != nullptr) ops::add_inplace(state_.ops, y, *residual);
  if (drops_all || slots.module_drops(kPostAttentionNorm)) saved.normed.reset();
  return {std::move(y)};
}

core::Tensor MoeLayer::finish_forward(PartialSum sum, FeedForwardActivations&, const core::TensorView*) {
  return sum.take();
}

void MoeLayer::refill(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots&,
                      const SequenceContext& sequence) {
  start_route(x, saved, sequence);
  if (shared_ && overlap_.shared_experts) shared_->refill(saved.normed, saved.moe);
  dispatcher_->finish_dispatch(saved.moe);
  experts_.refill(saved.moe);
  if (shared_ && !overlap_.shared_experts) shared_->refill(saved.normed, saved.moe);
}

bool MoeLayer::is_uneven(const MoeActivations& moe, const SequenceContext& sequence) {
  const MixtureOfExpertsConfig& config = state_.config.training;
  if (!config.moe_adaptive_recompute_activation || !sequence.training()) return false;
  int64_t busiest = moe.busiest;
  if (state_.tp_size() > 1)
    state_.groups.tp.allreduce(core::TensorView(&busiest, core::DType::kInt64, {1}), core::ReduceOp::kMax);
  const auto ranks = dispatches_tokens(state_.config) ? state_.groups.grid.ep * state_.groups.grid.etp : 1;
  const auto even =
      static_cast<double>(ranks * moe.routing.experts.size()) / static_cast<double>(router_.num_experts());
  return static_cast<double>(busiest) > config.moe_adaptive_recompute_activation_scale * even;
}

void MoeLayer::count(const MoeActivations& saved, const ops::BalanceLosses& losses) {
  if (state_.routing == nullptr) return;
  LayerLoad load{.tokens = saved.sent, .received = saved.rows(), .losses = losses};
  load.dropped = saved.routing.experts.size() - std::accumulate(saved.sent.begin(), saved.sent.end(), int64_t{0});
  // Each has a part of the micro-batch, and of its losses.
  load.microbatches = state_.tp_rank() == 0 && state_.groups.at.cp == 0 ? 1 : 0;
  state_.routing->add(layer_, load);
}

TokenDispatcher::TokenGradients MoeLayer::experts_backward(MoeActivations& moe) {
  TokenDispatcher::RowGradients of_rows = dispatcher_->finish_dispatch_gradient(moe);
  Experts::WeightOperands later;
  const auto bring = [&] { dispatcher_->finish_again(moe); };
  Experts::Gradients gradients = experts_.backward(std::move(of_rows.rows), of_rows.weights, moe, bring,
                                                   overlap_.weight_gradients ? &later : nullptr);
  of_rows.weights.reset();
  dispatcher_->start_combine_gradient({std::move(gradients.permuted), std::move(gradients.weights)}, moe);
  if (overlap_.weight_gradients) experts_.backward_weights(std::move(later), moe, bring);
  return dispatcher_->finish_combine_gradient(moe);
}

PartialSum MoeLayer::start_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                                    const SequenceContext& sequence, WeightGradients& weights) {
  MoeActivations& moe = saved.moe;
  if (!moe.logits.defined()) refill(x, saved, {}, sequence);
  norm_.recompute(x, saved.normed);
  dispatcher_->start_dispatch_gradient(as_tokens(dy), moe);
  if (!moe.permuted.defined()) dispatcher_->start_again(as_tokens(saved.normed), moe);
  const auto through_shared = [&] { return shared_->backward(dy, saved.normed.share(), moe, weights); };
  core::Tensor of_shared;
  if (shared_ && overlap_.shared_experts) of_shared = through_shared();
  TokenDispatcher::TokenGradients of_tokens = experts_backward(moe);
  const ops::BalanceLosses losses = router_.backward(std::move(of_tokens.probs), as_tokens(saved.normed), moe,
                                                     saved.normed.dim(1), sequence, of_tokens.tokens);
  count(moe, losses);
  moe.routing = {};
  moe.rows_of_slots.reset();
  moe.all_experts.reset();
  moe.all_probs.reset();
  of_tokens.tokens.reshape(saved.normed.shape());
  if (shared_) {
    if (!overlap_.shared_experts) of_shared = through_shared();
    ops::add_inplace(state_.ops, of_tokens.tokens, of_shared);
  }
  saved.normed.reset();
  return {std::move(of_tokens.tokens)};
}

core::Tensor MoeLayer::finish_backward(PartialSum sum, const core::TensorView& x, FeedForwardActivations& saved,
                                       const core::TensorView& dresidual) {
  const core::Tensor dnormed = sum.take();
  return norm_.backward(dnormed, x, saved.norm, &dresidual);
}

}  // namespace ms::train
