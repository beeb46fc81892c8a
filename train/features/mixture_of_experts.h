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

inline constexpr std::string_view kAuxLoss = "aux_loss", kSeqAuxLoss = "seq_aux_loss",
                                  kGlobalAuxLoss = "global_aux_loss", kSinkhorn = "sinkhorn",
                                  kSoftmaxTopk = "softmax_topk", kPaiAuxLoss = "pai_megatron_aux_loss",
                                  kGroupLimited = "group_limited_greedy", kSparseMixer = "sparsemixer_topk",
                                  kNoBalancing = "none";

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
  bool seq_aux = false;
  std::string moe_router_dtype = "fp32";
  std::optional<double> moe_input_jitter_eps;
  bool moe_router_force_load_balancing = false;
  bool fix_router = false;
  bool moe_layer_recompute = false;
  std::string moe_zero_memory = "disable";
  std::optional<int64_t> moe_zero_memory_num_layers;
  bool moe_adaptive_recompute_activation = false;
  double moe_adaptive_recompute_activation_scale = 2;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = MixtureOfExpertsConfig;
    field("moe_router_load_balancing_type", &C::moe_router_load_balancing_type,
          "How the load of experts is kept even: aux_loss (over the tokens of a micro-batch), seq_aux_loss (of each "
          "sequence), global_aux_loss (over the micro-batches of a step so far, of all replicas), several of them, "
          "sinkhorn (the choice itself is balanced), or none. MindSpeed-LLM's: softmax_topk (none with "
          "--moe-router-pre-softmax), pai_megatron_aux_loss (aux_loss with it, without groups and scaling factor), "
          "group_limited_greedy (DeepSeek-V2: groups by their highest score; the loss counts what was chosen) and "
          "sparsemixer_topk (Phi-3.5-MoE: two experts are drawn in training, by a softmax over the scores near the "
          "highest)");
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
          "load, and takes from that of the others");
    field("norm_topk_prob", &C::norm_topk_prob,
          "Divide the weights of a token's experts by their sum, so that they add up to 1: the opposite of "
          "--moe-router-pre-softmax, and the default");
    field("seq_aux", &C::seq_aux,
          "The auxiliary loss is that of each sequence: none means seq_aux_loss with the coefficient of "
          "--moe-aux-loss-coeff; with group_limited_greedy its loss");
    field("moe_router_dtype", &C::moe_router_dtype,
          "What the router's products are summed in: fp32 or fp64, each rounded to fp32 once. Its scores are fp32");
    field("moe_input_jitter_eps", &C::moe_input_jitter_eps,
          "In training, multiply each element of what the router reads by a random number from 1 - this to 1 + this "
          "(Switch Transformer). Default: none");
    field("moe_router_force_load_balancing", &C::moe_router_force_load_balancing,
          "For measurements: in training, random logits in place of the router's, so that all experts have nearly the "
          "same load; the loss means nothing then");
    field("fix_router", &C::fix_router,
          "For measurements: send tokens to experts in turn, so that all experts have the same load, whatever the "
          "router's scores are; the loss means nothing then");
    field("moe_layer_recompute", &C::moe_layer_recompute,
          "Compute layers' blocks of experts again in backward, as --recompute-modules moe");
    field("moe_zero_memory", &C::moe_zero_memory,
          "Drop activations of experts, and compute them again in backward: level0, what experts read (tokens travel "
          "once more) and the result of their activation; level1, the results of linear_fc1, too, and those of shared "
          "experts");
    field("moe_zero_memory_num_layers", &C::moe_zero_memory_num_layers,
          "With --moe-zero-memory level1: so many layers of a stage, or of each of its chunks; the others drop the "
          "result of the activation. Default: all");
    field("moe_adaptive_recompute_activation", &C::moe_adaptive_recompute_activation,
          "Compute a block of experts again in the backward of those micro-batches in which an expert has more tokens "
          "than its even share times --moe-adaptive-recompute-activation-scale");
    field("moe_adaptive_recompute_activation_scale", &C::moe_adaptive_recompute_activation_scale,
          "With --moe-adaptive-recompute-activation: the factor");
  }
};

bool has_balancing(const MixtureOfExpertsConfig& config, std::string_view type);
// Whether the choice of experts looks at all tokens of a micro-batch, which ranks then gather.
bool gathers_tokens_of_microbatch(const MixtureOfExpertsConfig& config);
// Of kAuxLoss, kSeqAuxLoss or kGlobalAuxLoss: 0 if no type has that loss.
double balancing_coefficient(const MixtureOfExpertsConfig& config, std::string_view loss);
// Whether there is an auxiliary loss, of counts of tokens.
bool has_balance_losses(const MixtureOfExpertsConfig& config);

// Of --moe-zero-memory: 0 or 1; -1: none.
int zero_memory_level(const MixtureOfExpertsConfig& config);

Feature mixture_of_experts_feature();

}  // namespace ms::train
