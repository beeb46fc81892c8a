// Tensor names shared by the families with experts, in the order in which transformers writes them.
#pragma once

#include <array>

#include "convert/families/llama_style.h"

namespace ms::convert {

inline constexpr std::array kMoeBefore = {NameRule{kHfOutput, kOutputLayer},
                                          NameRule{"embed_tokens.weight", kWordEmbeddings}};
inline constexpr std::array kMoeAfter = {NameRule{"norm.weight", "decoder.final_layernorm.weight"}};

// The MLP of a layer: dense, or experts and their router. transformers 5 keeps all experts in one tensor, in memory
// and, on request, in files.
inline constexpr NameRule kDenseDown{"mlp.down_proj.weight", "mlp.linear_fc2.weight"};
inline constexpr NameRule kDenseGate{"mlp.gate_proj.weight", "mlp.linear_fc1.weight", Part::kGate};
inline constexpr NameRule kDenseUp{"mlp.up_proj.weight", "mlp.linear_fc1.weight", Part::kUp};

constexpr NameRule expert_rule(std::string_view hf, Part part) {
  const bool first = part == Part::kGate || part == Part::kUp;
  return {.hf = hf,
          .canonical = first ? "mlp.experts.local_experts.{expert}.linear_fc1.weight"
                             : "mlp.experts.local_experts.{expert}.linear_fc2.weight",
          .part = part,
          .also = first ? "mlp.experts.gate_up_proj" : "mlp.experts.down_proj"};
}
inline constexpr NameRule kExpertDown = expert_rule("mlp.experts.{expert}.down_proj.weight", Part::kWhole);
inline constexpr NameRule kExpertGate = expert_rule("mlp.experts.{expert}.gate_proj.weight", Part::kGate);
inline constexpr NameRule kExpertUp = expert_rule("mlp.experts.{expert}.up_proj.weight", Part::kUp);
inline constexpr NameRule kExpertBias{"mlp.gate.e_score_correction_bias", "mlp.router.expert_bias"};
inline constexpr NameRule kRouter{"mlp.gate.weight", "mlp.router.weight"};

constexpr NameRule shared_rule(std::string_view hf, Part part) {
  const bool first = part != Part::kWhole;
  return {.hf = hf,
          .canonical = first ? "mlp.shared_experts.linear_fc1.weight" : "mlp.shared_experts.linear_fc2.weight",
          .part = part};
}
inline constexpr std::array kSharedExperts = {shared_rule("mlp.shared_experts.down_proj.weight", Part::kWhole),
                                              shared_rule("mlp.shared_experts.gate_proj.weight", Part::kGate),
                                              shared_rule("mlp.shared_experts.up_proj.weight", Part::kUp)};
inline constexpr std::array kMoeMlp = {kDenseDown,  kDenseGate, kDenseUp,    kExpertDown,
                                       kExpertGate, kExpertUp,  kExpertBias, kRouter};
inline constexpr std::array kMoeMlpNorm = {
    NameRule{"post_attention_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"},
    NameRule{"post_attention_layernorm.weight", "pre_mlp_layernorm.weight"}};
inline constexpr std::array kMoeAttention = {kKeyNorm,   kKeyBias, kKey,       kProjection, kQueryNorm,
                                             kQueryBias, kQuery,   kValueBias, kValue};
inline constexpr std::array kMoeInputNorm = {kInputNorm};

// A multi-token prediction layer; its embeddings and output layer are stored copies of the model's.
inline constexpr std::array kMtpBefore = {
    NameRule{.hf = "embed_tokens.weight", .canonical = kWordEmbeddings, .is_copy = true},
    NameRule{"enorm.weight", "enorm.weight"}, NameRule{"hnorm.weight", "hnorm.weight"},
    NameRule{"eh_proj.weight", "eh_proj.weight"}};
inline constexpr std::array kMtpAfter = {
    NameRule{.hf = "shared_head.head.weight", .canonical = kOutputLayer, .is_copy = true},
    NameRule{"shared_head.norm.weight", "final_layernorm.weight"}};

inline constexpr ConfigKey kExpertsPerToken{"num_experts_per_tok", &C::moe_router_topk};
inline constexpr ConfigKey kMoeIntermediateSize{"moe_intermediate_size", &C::moe_ffn_hidden_size};
// If the scores of the chosen experts add up to one, they are a softmax over these experts alone.
constexpr ConfigKey norm_topk_prob(bool absent) {
  return {.hf = "norm_topk_prob", .field = &C::moe_router_pre_softmax, .absent = absent ? 1.0 : 0.0, .negated = true};
}
inline constexpr ConfigKey kRoutedExperts{"n_routed_experts", &C::num_experts};
inline constexpr ConfigKey kExpertGroups{"n_group", &C::moe_router_num_groups, 0.0, /*null_is_none=*/true};
inline constexpr ConfigKey kChosenGroups{"topk_group", &C::moe_router_group_topk, 0.0, /*null_is_none=*/true};
constexpr ConfigKey routed_scaling_factor(double absent) {
  return {"routed_scaling_factor", &C::moe_router_topk_scaling_factor, absent};
}

}  // namespace ms::convert
