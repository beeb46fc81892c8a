#include "train/model/router.h"

#include <algorithm>

#include "core/rng.h"
#include "train/features/mixture_of_experts.h"
#include "train/model/routing_statistics.h"
#include "train/ops/elementwise.h"
#include "train/ops/linear_fp64.h"

namespace ms::train {
namespace {

// kSoftmax for one over the chosen, too.
ops::RouterScores scores_of_model(const core::TransformerConfig& model) {
  if (model.moe_router_score_function == "sigmoid") return ops::RouterScores::kSigmoid;
  if (model.moe_router_score_function == "sqrtsoftplus") return ops::RouterScores::kSqrtSoftplus;
  return ops::RouterScores::kSoftmax;
}

ops::RouterParams router_params(const TrainerConfig& config) {
  const core::TransformerConfig& model = config.model;
  ops::RouterParams params = {.topk = model.moe_router_topk,
                              .num_groups = model.moe_router_num_groups,
                              .group_topk = model.moe_router_group_topk,
                              .scaling_factor = model.moe_router_topk_scaling_factor,
                              .fixed = config.training.fix_router};
  if (has_balancing(config.training, kSinkhorn)) {  // which has weights of its own, as in Megatron
    return {.topk = params.topk,
            .scores = params.topk == 1 ? ops::RouterScores::kSigmoid : ops::RouterScores::kSoftmax,
            .sinkhorn = true,
            .fixed = params.fixed};
  }
  // With --fix-router nothing is drawn.
  if (has_balancing(config.training, kSparseMixer))
    return {.topk = params.topk, .sparse_mixer = !params.fixed, .fixed = params.fixed};
  if (has_balancing(config.training, kPaiAuxLoss))
    return {.topk = params.topk, .scores = ops::RouterScores::kSoftmax, .fixed = params.fixed};
  if (has_balancing(config.training, kGroupLimited)) {
    params.groups_by_best = true;
    if (config.training.norm_topk_prob) params.scaling_factor = 1;  // as there
  }
  params.scores = scores_of_model(model);
  if (params.scores == ops::RouterScores::kSoftmax && !model.moe_router_pre_softmax)
    params.scores = ops::RouterScores::kSoftmaxOfChosen;
  return params;
}

std::string router_prefix(const RankState& state, int64_t layer) {
  return layout::layer_name(state.config.model, layer) + ".mlp.router.";
}

// As in MindSpeed-LLM: of softmax scores softmax_topk alone knows one.
const ModelBuffer* bias_of_choice(const TrainerConfig& config, const ModelBuffer* bias) {
  const bool has_one =
      config.model.moe_router_score_function != "softmax" || has_balancing(config.training, kSoftmaxTopk);
  return has_one ? bias : nullptr;
}

uint64_t noise_key(const RankState& state, const char* what, int64_t layer) {
  return core::Rng(static_cast<uint64_t>(state.config.rng.seed), core::cat(what, " ", router_prefix(state, layer)))
      .key();
}

}  // namespace

Router::Router(RankState& state, ParameterStore& parameters, int64_t layer)
    : state_(state),
      layer_(layer),
      weight_(parameters.at(router_prefix(state, layer) + "weight")),
      bias_(bias_of_choice(state.config, parameters.find_buffer(router_prefix(state, layer) + "expert_bias"))),
      params_(router_params(state.config)),
      balance_{.topk = state.config.model.moe_router_topk,
               .scores = scores_of_model(state.config.model),
               .aux_coeff = balancing_coefficient(state.config.training, kAuxLoss),
               .seq_aux_coeff = balancing_coefficient(state.config.training, kSeqAuxLoss),
               .global_aux_coeff = balancing_coefficient(state.config.training, kGlobalAuxLoss),
               .z_coeff = state.config.training.moe_z_loss_coeff.value_or(0),
               .mean_of_step = [this](std::span<double> counts) { mean_of_step(counts); }},
      fp64_(state.config.training.moe_router_dtype == "fp64"),
      counts_choices_(has_balancing(state.config.training, kGroupLimited)),
      pads_(state.config.parallel.variable_seq_lengths),
      jitter_eps_(state.config.training.moe_input_jitter_eps.value_or(0)),
      jitter_key_(noise_key(state, "jitter", layer)),
      logits_key_(noise_key(state, "logits", layer)),
      draws_key_(noise_key(state, "draws", layer)),
      sum_(state.config.training.gradient_accumulation_fusion ? ops::WeightGradientSum::kInProduct
                                                              : ops::WeightGradientSum::kRounded) {}

void Router::for_each_noise(uint64_t key, const core::TensorView& tokens, const SequenceContext& sequence,
                            const std::function<void(const core::TensorView&, const ops::TokenNoise&)>& add) const {
  const auto batch = static_cast<int64_t>(sequence.samples.size());
  const int64_t rows = tokens.dim(0) / batch, first = state_.tp_rank() * rows;
  sequence.share.for_each_run(first, first + rows, [&](int64_t row, int64_t position, int64_t count) {
    const int64_t begin = (row - first) * batch;
    add(tokens.rows(begin, begin + count * batch),
        {.key = key, .first_position = position, .samples = sequence.samples});
  });
}

void Router::jitter(const core::TensorView& tokens, const SequenceContext& sequence) const {
  for_each_noise(jitter_key_, tokens, sequence, [&](const core::TensorView& rows, const ops::TokenNoise& noise) {
    ops::jitter_inplace(state_.ops, rows, jitter_eps_, noise);
  });
}

const core::TensorView& Router::input(const core::TensorView& tokens, const SequenceContext& sequence,
                                      core::Tensor& jittered) {
  if (!jitters(sequence)) return tokens;
  jittered = ops::cast(state_.ops, tokens, tokens.dtype());
  jitter(jittered, sequence);
  return jittered;
}

// Ranks that share sequences have counted the same, each that of all.
void Router::mean_of_step(std::span<double> counts) {
  core::Communicator& replicas = state_.groups.dp_cp;
  if (replicas.size() > 1) replicas.allreduce(counts);
  for (double& count : counts) count /= replicas.size();
  if (state_.routing != nullptr) state_.routing->average(layer_, counts);
}

core::Tensor Router::draw(int64_t tokens, const SequenceContext& sequence) {
  core::Tensor draws(state_.ops.arena, core::DType::kFp32, {tokens, 2 * (num_experts() + 1)}, core::MemoryTag::kTmp);
  for_each_noise(draws_key_, draws, sequence, [&](const core::TensorView& rows, const ops::TokenNoise& noise) {
    ops::fill_uniform(state_.ops, rows, noise);
  });
  return draws;
}

void Router::drop(ops::Routing& routing, double factor, const RoutedParts& parts) {
  const auto policy =
      state_.config.training.moe_token_drop_policy == "position" ? ops::DropPolicy::kPosition : ops::DropPolicy::kProbs;
  const auto drop_of = [&](ops::Routing& of) {
    const int64_t capacity = ops::expert_capacity(parts.whole_tokens(), params_.topk, num_experts(), factor);
    ops::drop_beyond_capacity(state_.ops, of, num_experts(), capacity, policy);
  };
  if (parts.count() == 1) return drop_of(routing);
  ops::Routing whole{
      parts.by_position(parts.of_all(routing.experts)), parts.by_position(parts.of_all(routing.probs)), {}};
  if (pads_) ops::drop_padding(state_.ops, whole, num_experts(), parts.padding_by_position());
  drop_of(whole);
  if (!routing.destinations.defined()) {
    routing.destinations =
        core::Tensor(state_.ops.arena, core::DType::kInt32, routing.experts.shape(), core::MemoryTag::kAct);
  }
  parts.for_each_run([&](int64_t token, int64_t of_whole, int64_t count) {
    const int64_t end = of_whole + count, own = token * params_.topk;
    std::ranges::copy(whole.destinations.view().rows(of_whole, end).elements<int32_t>(),
                      routing.destinations.data<int32_t>() + own);
    std::ranges::copy(whole.probs.view().rows(of_whole, end).elements<float>(), routing.probs.data<float>() + own);
  });
}

void Router::forward(const core::TensorView& tokens, MoeActivations& saved, const SequenceContext& sequence) {
  const MixtureOfExpertsConfig& config = state_.config.training;
  const RoutedParts parts(state_, sequence, tokens.dim(0));
  core::Tensor jittered;
  saved.logits = fp64_ ? ops::linear_fp64(state_.ops, input(tokens, sequence, jittered), weight_.weight)
                       : ops::linear_fp32(state_.ops, input(tokens, sequence, jittered), weight_.weight);
  jittered.reset();
  if (config.moe_router_force_load_balancing && sequence.training()) {
    for_each_noise(
        logits_key_, saved.logits, sequence,
        [&](const core::TensorView& rows, const ops::TokenNoise& noise) { ops::fill_normal(state_.ops, rows, noise); });
  }
  ops::RouterParams params = params_;
  params.sinkhorn = params.sinkhorn && sequence.training();
  core::Tensor whole, draws;
  if (params.sparse_mixer && sequence.training()) {
    draws = draw(tokens.dim(0), sequence);
    params.draws = &draws.view();
  }
  std::vector<uint8_t> padding;
  if (params.sinkhorn && parts.count() > 1) {
    whole = parts.of_all(saved.logits);
    params.whole = &whole.view();
    params.first_token = parts.first_token();
  }
  if (params.sinkhorn && pads_) params.padding = padding = parts.padding_of_all();
  saved.routing =
      ops::choose_experts(state_.ops, saved.logits, params, bias_ != nullptr ? &bias_->values.view() : nullptr);
  whole.reset();
  draws.reset();
  if (pads_) ops::drop_padding(state_.ops, saved.routing, num_experts(), parts.padding());
  if (config.moe_expert_capacity_factor) drop(saved.routing, *config.moe_expert_capacity_factor, parts);
}

ops::BalanceLosses Router::backward(core::Tensor dprobs, const core::TensorView& tokens, MoeActivations& saved,
                                    int64_t batch, const SequenceContext& sequence, const core::TensorView& dtokens) {
  core::Tensor dlogits = ops::choose_experts_backward(state_.ops, dprobs, saved.logits, saved.routing, params_);
  dprobs.reset();
  ops::BalanceLosses losses;
  const RoutedParts parts(state_, sequence, tokens.dim(0));
  ops::BalanceParams balance = balance_;
  balance.batch = batch;
  balance.padding = saved.routing.padding;
  balance.whole_tokens = parts.whole_tokens();
  if (parts.count() > 1) balance.sum = [&](std::span<double> counts) { parts.sum(counts); };
  if (counts_choices_) balance.chosen = &saved.routing.experts.view();
  if (balance.any())
    losses = ops::add_balance_gradients(state_.ops, saved.logits, balance, sequence.auxiliary_scale, dlogits);
  core::Tensor jittered;
  if (weight_.trains() && fp64_) {
    ops::linear_fp64_wgrad(state_.ops, input(tokens, sequence, jittered), dlogits, weight_.main_grad);
  } else if (weight_.trains()) {
    ops::linear_wgrad(state_.ops, input(tokens, sequence, jittered), dlogits, weight_.main_grad, sum_);
  }
  jittered.reset();
  const core::Tensor dinput = fp64_ ? ops::linear_fp64_dgrad(state_.ops, dlogits, weight_.weight)
                                    : ops::linear_dgrad(state_.ops, dlogits, weight_.weight);
  if (jitters(sequence)) jitter(dinput, sequence);
  ops::add_inplace(state_.ops, dtokens, dinput);
  saved.logits.reset();
  return losses;
}

}  // namespace ms::train
