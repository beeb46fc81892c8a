// Layers with experts instead of an MLP: how they are trained. What a model with experts is (their number, the router's
// scores, ..) is in core/transformer_config.h. Source: megatron/core/transformer/moe; MindSpeed-LLM's
// --first-k-dense-replace and --n-shared-experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/features/feature.h"

namespace ms::train {

inline constexpr std::string_view kAuxLoss = "aux_loss", kSeqAuxLoss = "seq_aux_loss", kSinkhorn = "sinkhorn",
                                  kSoftmaxTopk = "softmax_topk", kNoBalancing = "none";

struct MixtureOfExpertsConfig {
  std::vector<std::string> moe_router_load_balancing_type = {std::string(kAuxLoss)};
  std::vector<double> moe_aux_loss_coeff = {0.0};
  std::optional<double> moe_z_loss_coeff;
  std::optional<double> moe_expert_capacity_factor;
  std::string moe_token_drop_policy = "probs";
  std::optional<int64_t> first_k_dense_replace;
  std::optional<int64_t> n_shared_experts;
  double moe_router_bias_update_rate = 1e-3;
  bool norm_topk_prob = false;
  bool fix_router = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = MixtureOfExpertsConfig;
    field(
        "moe_router_load_balancing_type", &C::moe_router_load_balancing_type,
        "How the load of experts is kept even: aux_loss (over the tokens of a micro-batch), seq_aux_loss (of each "
        "sequence), several of them, sinkhorn (the choice itself is balanced), or none. softmax_topk, MindSpeed-LLM's "
        "name, is none with --moe-router-pre-softmax");
    field("moe_aux_loss_coeff", &C::moe_aux_loss_coeff,
          "Coefficient of the auxiliary loss, one for each of --moe-router-load-balancing-type; 1e-2 is a good start");
    field("moe_z_loss_coeff", &C::moe_z_loss_coeff,
          "Coefficient of the router's z loss, which keeps its logits small; 1e-3 is a good start. Default: none");
    field("moe_expert_capacity_factor", &C::moe_expert_capacity_factor,
          "Drop choices of an expert beyond this many times its even share of a micro-batch. Default: none is dropped");
    field("moe_token_drop_policy", &C::moe_token_drop_policy,
          "With --moe-expert-capacity-factor, which choices stay: probs (the highest weights) or position (the first "
          "tokens)");
    field("first_k_dense_replace", &C::first_k_dense_replace,
          "Layers at the beginning without experts, whatever --moe-layer-freq says; 0 or -1: none");
    field("n_shared_experts", &C::n_shared_experts,
          "Shared experts, each as wide as --moe-ffn-hidden-size: another way to give "
          "--moe-shared-expert-intermediate-size");
    field("moe_router_bias_update_rate", &C::moe_router_bias_update_rate,
          "With --moe-router-enable-expert-bias: what each step adds to the bias of experts with less than the mean "
          "load, "
          "and takes from that of the others");
    field("norm_topk_prob", &C::norm_topk_prob,
          "Divide the weights of a token's experts by their sum, so that they add up to 1: the opposite of "
          "--moe-router-pre-softmax, and the default");
    field("fix_router", &C::fix_router,
          "For measurements: send tokens to experts in turn, so that all experts have the same load, whatever the "
          "router's scores are; the loss means nothing then");
  }
};

bool has_balancing(const MixtureOfExpertsConfig& config, std::string_view type);
// 0 if it is not among the types.
double balancing_coefficient(const MixtureOfExpertsConfig& config, std::string_view type);
// Whether there is an auxiliary loss, of counts of tokens.
bool has_balance_losses(const MixtureOfExpertsConfig& config);

Feature mixture_of_experts_feature();

}  // namespace ms::train
