#include "train/model/router.h"

#include "train/features/mixture_of_experts.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

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
  if (model.moe_router_score_function == "sigmoid") {
    params.scores = ops::RouterScores::kSigmoid;
  } else if (model.moe_router_pre_softmax) {
    params.scores = ops::RouterScores::kSoftmax;
  }
  return params;
}

}  // namespace

Router::Router(RankState& state, ParameterStore& parameters, const std::string& name)
    : state_(state),
      weight_(parameters.at(name + "weight")),
      bias_(parameters.find_buffer(name + "expert_bias")),
      params_(router_params(state.config)),
      balance_{.topk = state.config.model.moe_router_topk,
               .sigmoid = state.config.model.moe_router_score_function == "sigmoid",
               .aux_coeff = balancing_coefficient(state.config.training, kAuxLoss),
               .seq_aux_coeff = balancing_coefficient(state.config.training, kSeqAuxLoss),
               .z_coeff = state.config.training.moe_z_loss_coeff.value_or(0),
               .parts = state.tp_size(),
               .sum = [&tp = state.groups.tp](std::span<double> counts) { tp.allreduce(counts); }},
      sum_(state.config.training.gradient_accumulation_fusion ? ops::WeightGradientSum::kInProduct
                                                              : ops::WeightGradientSum::kRounded) {}

void Router::forward(const core::TensorView& tokens, MoeActivations& saved, const SequenceContext& sequence) {
  saved.logits = ops::linear_fp32(state_.ops, tokens, weight_.weight);
  ops::RouterParams params = params_;
  params.sinkhorn = params.sinkhorn && sequence.training();
  saved.routing =
      ops::choose_experts(state_.ops, saved.logits, params, bias_ != nullptr ? &bias_->values.view() : nullptr);
  const MixtureOfExpertsConfig& config = state_.config.training;
  if (!config.moe_expert_capacity_factor) return;
  const int64_t capacity =
      ops::expert_capacity(tokens.dim(0), params.topk, num_experts(), *config.moe_expert_capacity_factor);
  ops::drop_beyond_capacity(
      state_.ops, saved.routing, num_experts(), capacity,
      config.moe_token_drop_policy == "position" ? ops::DropPolicy::kPosition : ops::DropPolicy::kProbs);
}

ops::BalanceLosses Router::backward(core::Tensor dprobs, const core::TensorView& tokens, MoeActivations& saved,
                                    int64_t batch, const SequenceContext& sequence, const core::TensorView& dtokens) {
  core::Tensor dlogits = ops::choose_experts_backward(state_.ops, dprobs, saved.logits, saved.routing, params_);
  dprobs.reset();
  ops::BalanceLosses losses;
  ops::BalanceParams balance = balance_;
  balance.batch = batch;
  if (balance.any())
    losses = ops::add_balance_gradients(state_.ops, saved.logits, balance, sequence.auxiliary_scale, dlogits);
  if (weight_.trains()) ops::linear_wgrad(state_.ops, tokens, dlogits, weight_.main_grad, sum_);
  ops::add_inplace(state_.ops, dtokens, ops::linear_dgrad(state_.ops, dlogits, weight_.weight));
  saved.logits.reset();
  return losses;
}

}  // namespace ms::train
