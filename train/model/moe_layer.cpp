#include "train/model/moe_layer.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>

#include "train/features/expert_parallel.h"
#include "train/model/routed_parts.h"
#include "train/model/routing_statistics.h"
#include "train/model/routing_trace.h"
#include "train/model/traced_layer.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

std::string name_of(const RankState& state, int64_t layer, const char* part) {
  return core::cat(layout::layer_name(state.config.model, layer), ".", part);
}

using core::trace::ExpertExchange;

std::array<std::string, core::trace::kNumExpertExchanges> exchange_names(const RankState& state, int64_t layer) {
  std::array<std::string, core::trace::kNumExpertExchanges> names;
  for (size_t i = 0; i < names.size(); ++i)
    names[i] = expert_exchange_name(static_cast<ExpertExchange>(i), traced_layer(state.config.model, layer));
  return names;
}

// [seq, batch, hidden] -> [tokens, hidden]
core::TensorView as_tokens(const core::TensorView& x) { return x.reshaped({x.dim(0) * x.dim(1), x.dim(2)}); }

// sum += part, which is the first one if there is no sum.
void add_part(ops::Context& ops, core::Tensor& sum, core::Tensor part) {
  if (!sum.defined()) {
    sum = std::move(part);
  } else {
    ops::add_inplace(ops, sum, part);
  }
}

}  // namespace

MoeLayer::MoeLayer(RankState& state, ParameterStore& parameters, int64_t layer)
    : state_(state),
      layer_(layer),
      dispatches_(dispatches_tokens(state.config)),
      exchange_names_(exchange_names(state, layer)),
      overlap_(expert_overlap(state.config)),
      groups_(groups_of_experts(state.config)),
      norm_(state, parameters, name_of(state, layer, "pre_mlp_layernorm.weight"),
            name_of(state, layer, "pre_mlp_layernorm.bias")),
      router_(state, parameters, layer),
      dispatcher_(make_token_dispatcher(state)),
      experts_(state, parameters, name_of(state, layer, "mlp.experts.local_experts.")),
      post_norm_(
          optional_norm(state.config.model.post_norm, state, parameters, name_of(state, layer, "post_mlp_layernorm"))) {
  if (state.config.model.moe_shared_expert_intermediate_size == 0) return;
  shared_.emplace(state, parameters, name_of(state, layer, "mlp.shared_experts."));
}

// The choices of other groups' experts are dropped.
void MoeLayer::split_choices(MoeActivations& moe) {
  const int64_t experts = router_.num_experts(), each = experts / state_.groups.grid.ep, of_group = each / groups_;
  moe.groups.clear();
  for (int64_t group = 0; group < groups_; ++group) {
    MoeActivations& own = moe.groups.emplace_back();
    own.routing = {
        moe.routing.experts.share(), moe.routing.probs.share(),
        core::Tensor(state_.ops.arena, core::DType::kInt32, moe.routing.experts.shape(), core::MemoryTag::kAct)};
    std::ranges::transform(moe.routing.sent_to().elements<int32_t>(), own.routing.destinations.data<int32_t>(),
                           [&](int32_t expert) {
                             const bool is_own = expert < experts && expert % each / of_group == group;
                             return is_own ? expert : static_cast<int32_t>(experts);
                           });
  }
}

void MoeLayer::start_route(const core::TensorView& x, FeedForwardActivations& saved, const SequenceContext& sequence) {
  MoeActivations& moe = saved.moe;
  saved.normed = norm_.forward(x, saved.norm);
  const core::TensorView tokens = as_tokens(saved.normed);
  router_.forward(tokens, moe, sequence);
  if (state_.expert_slots != nullptr) send_to_slots(moe.routing);
  if (groups_ > 1) split_choices(moe);
  for (MoeActivations& part : moe.parts())
    traced(ExpertExchange::kDispatch, [&] { dispatcher_->start_dispatch(tokens, part); });
}

void MoeLayer::send_to_slots(ops::Routing& routing) const {
  const std::vector<int32_t>& slots = state_.expert_slots->at(layer_);
  const core::TensorView chosen = routing.sent_to();
  if (!routing.destinations.defined()) {
    routing.destinations =
        core::Tensor(state_.ops.arena, core::DType::kInt32, routing.experts.shape(), core::MemoryTag::kAct);
  }
  std::ranges::transform(chosen.elements<int32_t>(), routing.destinations.data<int32_t>(), [&](int32_t expert) {
    const auto index = static_cast<size_t>(expert);
    return index < slots.size() ? slots[index] : expert;  // one that was dropped stays so
  });
}

void MoeLayer::dispatch(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                        const SequenceContext& sequence) {
  start_route(x, saved, sequence);
  if (sequence.training() && state_.routing != nullptr && state_.routing->trace() != nullptr)
    state_.routing->trace()->add(traced_layer(state_.config.model, layer_), saved.moe.routing.experts,
                                 saved.moe.routing.padding);
  saved.moe.pass.slots = slots;
  if (overlaps_shared()) shared_->start_forward(saved.normed, saved.moe);
}

void MoeLayer::run_experts(FeedForwardActivations& saved, const SequenceContext& sequence) {
  MoeActivations& moe = saved.moe;
  for (MoeActivations& part : moe.parts()) {
    traced(ExpertExchange::kDispatch, [&] { dispatcher_->finish_dispatch(part); });
    moe.pass.drops_all = is_uneven(part, sequence) || moe.pass.slots.module_drops(layout::SavedSlot::kRouting);
    part.pass.of_experts = experts_.forward(part, moe.pass.slots);
    if (groups_ > 1) start_combine(part);  // beside the products of the next group
  }
}

void MoeLayer::start_combine(MoeActivations& part) {
  traced(ExpertExchange::kCombine, [&] { dispatcher_->start_combine(std::move(part.pass.of_experts), part); });
}

void MoeLayer::combine(FeedForwardActivations& saved) {
  MoeActivations& moe = saved.moe;
  if (groups_ == 1) start_combine(moe);
  if (overlaps_shared()) moe.pass.of_shared = shared_->finish_forward(saved.normed, moe);
}

PartialSum MoeLayer::start_forward(const core::TensorView& x, FeedForwardActivations& saved,
                                   const layout::LayerSlots& slots, const core::TensorView*,
                                   const SequenceContext& sequence) {
  dispatch(x, saved, slots, sequence);
  run_experts(saved, sequence);
  combine(saved);
  return {};
}

core::Tensor MoeLayer::finish_forward(PartialSum, FeedForwardActivations& saved, const core::TensorView* residual) {
  using enum layout::SavedSlot;
  MoeActivations& moe = saved.moe;
  const bool drops_all = moe.pass.drops_all;
  const layout::LayerSlots slots = moe.pass.slots;
  core::Tensor y;
  for (MoeActivations& part : moe.parts())
    add_part(state_.ops, y, traced(ExpertExchange::kCombine, [&] { return dispatcher_->finish_combine(part); }));
  y.reshape(saved.normed.shape());
  if (shared_) {
    core::Tensor of_shared = overlaps_shared() ? std::move(moe.pass.of_shared) : shared_->forward(saved.normed, moe);
    ops::add_inplace(state_.ops, y, of_shared);
  }
  if (slots.module_drops(kProduct)) moe.shared_product.reset();
  if (slots.module_drops(kShared)) SharedExperts::drop(moe);
  if (drops_all) moe = {};
  if (post_norm_) {
    saved.branch = std::move(y);
    y = post_norm_->forward(saved.branch, saved.post_norm);
  }
  if (residual != nullptr) ops::add_inplace(state_.ops, y, *residual);
  if (drops_all || slots.module_drops(kPostAttentionNorm)) saved.normed.reset();
  return y;
}

void MoeLayer::refill(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                      const SequenceContext& sequence) {
  if (!post_norm_) return refill_experts(x, saved, sequence);
  start_route(x, saved, sequence);
  saved.moe.pass.slots = slots;
  if (overlaps_shared()) shared_->start_forward(saved.normed, saved.moe);
  run_experts(saved, {});
  combine(saved);
  finish_forward({}, saved, nullptr);
}

void MoeLayer::refill_experts(const core::TensorView& x, FeedForwardActivations& saved,
                              const SequenceContext& sequence) {
  start_route(x, saved, sequence);
  if (overlaps_shared()) shared_->refill(saved.normed, saved.moe);
  for (MoeActivations& part : saved.moe.parts()) {
    traced(ExpertExchange::kDispatch, [&] { dispatcher_->finish_dispatch(part); });
    experts_.refill(part);
  }
  if (shared_ && !overlaps_shared()) shared_->refill(saved.normed, saved.moe);
}

bool MoeLayer::is_uneven(const MoeActivations& moe, const SequenceContext& sequence) {
  const MixtureOfExpertsConfig& config = state_.config.training;
  if (!config.moe_adaptive_recompute_activation || !sequence.training()) return false;
  const double even = static_cast<double>(moe.all_rows) / static_cast<double>(router_.num_experts());
  double uneven = static_cast<double>(moe.busiest) > config.moe_adaptive_recompute_activation_scale * even ? 1 : 0;
  const std::span<double> ranks(&uneven, 1);  // where it is uneven
  // What gathers tokens in forward does so again in a block that runs again: with all that have a part of them.
  if (gathers_tokens_of_microbatch(config)) {
    RoutedParts(state_, sequence, moe.routing.experts.dim(0)).sum(ranks);
  } else if (state_.tp_size() > 1) {
    state_.groups.tp.allreduce(ranks);
  }
  return uneven != 0;
}

void MoeLayer::count(const MoeActivations& saved, const ops::BalanceLosses& losses, const SequenceContext& sequence) {
  if (state_.routing == nullptr) return;
  LayerLoad load{.losses = losses};
  for (const MoeActivations& part : saved.parts()) {
    LayerLoad own{.tokens = part.sent, .received = part.rows()};
    std::adjacent_difference(part.ends.begin(), part.ends.end(), std::back_inserter(own.rows));
    load += own;
  }
  const int64_t padding = std::ranges::count(saved.routing.padding, uint8_t{1});
  load.dropped = (saved.routing.experts.dim(0) - padding) * saved.routing.experts.dim(1) -
                 std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0});
  // Each has a part of the micro-batch, and of its losses.
  load.microbatches = state_.tp_rank() == 0 && state_.groups.at.cp % sequence.share.ranks() == 0 ? 1 : 0;
  if (state_.expert_slots != nullptr) {
    const std::vector<int64_t> of_slots = load.tokens;
    for (size_t expert = 0; expert < of_slots.size(); ++expert)
      load.tokens[expert] = of_slots[static_cast<size_t>(state_.expert_slots->at(layer_)[expert])];
  }
  state_.routing->add(layer_, load);
}

void MoeLayer::combine_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                                const SequenceContext& sequence, WeightGradients& weights) {
  MoeActivations& moe = saved.moe;
  core::Tensor dbranch = post_norm_ ? post_norm_->backward(dy, saved.branch, saved.post_norm) : dy.share();
  if (!moe.logits.defined()) refill_experts(x, saved, sequence);
  norm_.recompute(x, saved.normed);
  moe.pass.dy = std::move(dbranch);
  for (MoeActivations& part : moe.parts())
    traced(ExpertExchange::kDispatchGradient,
           [&] { dispatcher_->start_dispatch_gradient(as_tokens(moe.pass.dy), part); });
  if (groups_ == 1 && !moe.permuted.defined())
    traced(ExpertExchange::kDispatch, [&] { dispatcher_->start_again(as_tokens(saved.normed), moe); });
  if (overlaps_shared()) moe.pass.of_shared = shared_->backward(moe.pass.dy, saved.normed.share(), moe, weights);
}

// The gradients of the tokens and of their weights, through the chosen experts.
void MoeLayer::run_experts_backward(FeedForwardActivations& saved, WeightGradients& weights) {
  for (MoeActivations& part : saved.moe.parts()) {
    TokenDispatcher::RowGradients of_rows =
        traced(ExpertExchange::kDispatchGradient, [&] { return dispatcher_->finish_dispatch_gradient(part); });
    const auto bring = [&] { bring_rows(part); };
    Experts::Gradients gradients = experts_.backward(std::move(of_rows.rows), of_rows.weights, part, bring, weights,
                                                     overlap_.weight_gradients ? &part.pass.operands : nullptr);
    part.pass.of_experts = std::move(gradients.permuted);
    part.pass.of_weights = std::move(gradients.weights);
    if (groups_ > 1) start_combine_gradient(part, weights);  // beside the products of the next group
  }
}

void MoeLayer::dispatch_backward(FeedForwardActivations& saved, WeightGradients& weights) {
  if (groups_ == 1) start_combine_gradient(saved.moe, weights);
}

void MoeLayer::start_combine_gradient(MoeActivations& part, WeightGradients& weights) {
  traced(ExpertExchange::kCombineGradient, [&] {
    dispatcher_->start_combine_gradient({std::move(part.pass.of_experts), std::move(part.pass.of_weights)}, part);
  });
  if (!overlap_.weight_gradients) return;
  experts_.backward_weights(
      std::move(part.pass.operands), part, [&] { bring_rows(part); }, weights);
}

// The experts' rows, sent again: what --moe-zero-memory has dropped.
void MoeLayer::bring_rows(MoeActivations& moe) {
  traced(ExpertExchange::kDispatch, [&] { dispatcher_->finish_again(moe); });
}

PartialSum MoeLayer::start_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                                    const SequenceContext& sequence, WeightGradients& weights) {
  combine_backward(dy, x, saved, sequence, weights);
  run_experts_backward(saved, weights);
  dispatch_backward(saved, weights);
  return {};
}

core::Tensor MoeLayer::finish_backward(PartialSum, const core::TensorView& x, FeedForwardActivations& saved,
                                       const core::TensorView& dresidual, const SequenceContext& sequence,
                                       WeightGradients& weights) {
  MoeActivations& moe = saved.moe;
  TokenDispatcher::TokenGradients of_tokens;
  for (MoeActivations& part : moe.parts()) {
    TokenDispatcher::TokenGradients own =
        traced(ExpertExchange::kCombineGradient, [&] { return dispatcher_->finish_combine_gradient(part); });
    add_part(state_.ops, of_tokens.tokens, std::move(own.tokens));
    add_part(state_.ops, of_tokens.probs, std::move(own.probs));
  }
  const ops::BalanceLosses losses = router_.backward(std::move(of_tokens.probs), as_tokens(saved.normed), moe,
                                                     saved.normed.dim(1), sequence, of_tokens.tokens);
  count(moe, losses, sequence);
  moe.groups.clear();
  moe.routing = {};
  moe.rows_of_slots.reset();
  moe.all_experts.reset();
  moe.all_probs.reset();
  of_tokens.tokens.reshape(saved.normed.shape());
  if (shared_) {
    core::Tensor of_shared = overlaps_shared() ? std::move(moe.pass.of_shared)
                                               : shared_->backward(moe.pass.dy, saved.normed.share(), moe, weights);
    ops::add_inplace(state_.ops, of_tokens.tokens, of_shared);
  }
  moe.pass.dy.reset();
  saved.normed.reset();
  const core::Tensor dnormed = std::move(of_tokens.tokens);
  return norm_.backward(dnormed, x, saved.norm, &dresidual);
}

}  // namespace ms::train
