// DeepSeek-V2 and V3: latent attention, shared experts; V3 also a bias for choosing experts and multi-token prediction
// layers (transformers models/deepseek_v2, models/deepseek_v3).
#include "convert/families/families.h"
#include "convert/families/moe_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kQueryRank{"q_lora_rank", &C::q_lora_rank, 0.0, /*null_is_none=*/true};
constexpr ConfigKey kKeyValueRank{"kv_lora_rank", &C::kv_lora_rank};
constexpr ConfigKey kNopeDim{"qk_nope_head_dim", &C::qk_head_dim};
constexpr ConfigKey kRopeDim{"qk_rope_head_dim", &C::qk_pos_emb_head_dim};
constexpr ConfigKey kValueDim{"v_head_dim", &C::v_head_dim};

constexpr std::array kV2Keys = {kHiddenSize,
                                kIntermediateSize,
                                kMoeIntermediateSize,
                                kNumHiddenLayers,
                                kVocabSize,
                                kMaxPositionEmbeddings,
                                rms_norm_eps(1e-6),
                                kInitializerRange,
                                kQueryRank,
                                kKeyValueRank,
                                kNopeDim,
                                kRopeDim,
                                kValueDim,
                                kRoutedExperts,
                                kExpertsPerToken,
                                kExpertGroups,
                                kChosenGroups,
                                routed_scaling_factor(1.0),
                                norm_topk_prob(false),
                                kAttentionDropout};
constexpr std::array<RequiredFlag, 2> kV2Required = {{{"attention_bias", false}, {"mlp_bias", false}}};
constexpr std::array kV3Keys = {kHiddenSize,        kIntermediateSize, kMoeIntermediateSize,
                                kNumHiddenLayers,   kVocabSize,        kMaxPositionEmbeddings,
                                rms_norm_eps(1e-6), kInitializerRange, kQueryRank,
                                kKeyValueRank,      kNopeDim,          kRopeDim,
                                kValueDim,          kRoutedExperts,    kExpertsPerToken,
                                kExpertGroups,      kChosenGroups,     routed_scaling_factor(2.5),
                                kAttentionDropout};
constexpr std::array<RequiredFlag, 3> kV3Required = {
    {{"attention_bias", false}, {"norm_topk_prob", true}, {"rope_interleave", true}}};

constexpr std::array kLatentInputNorm = {NameRule{"input_layernorm.weight", "input_layernorm.weight"}};
constexpr std::array kLatentAttention = {
    NameRule{"self_attn.kv_a_layernorm.weight", "self_attention.linear_kv_up_proj.layer_norm_weight"},
    NameRule{"self_attn.kv_a_proj_with_mqa.weight", "self_attention.linear_kv_down_proj.weight"},
    NameRule{"self_attn.kv_b_proj.weight", "self_attention.linear_kv_up_proj.weight"},
    kProjection,
    NameRule{"self_attn.q_a_layernorm.weight", "self_attention.linear_q_up_proj.layer_norm_weight"},
    NameRule{"self_attn.q_a_proj.weight", "self_attention.linear_q_down_proj.weight"},
    NameRule{"self_attn.q_b_proj.weight", "self_attention.linear_q_up_proj.weight"},
    NameRule{"self_attn.q_proj.weight", "self_attention.linear_q_proj.weight"}};
constexpr auto kLayer = joined(kLatentInputNorm, kMoeMlp, kSharedExperts, kMoeMlpNorm, kLatentAttention);

constexpr auto kV2Structure =
    joined(kLlamaStyle, std::array{FixedField{&C::multi_latent_attention, true}, FixedField{&C::qk_layernorm, true}});
constexpr auto kV3Structure = joined(kV2Structure, std::array{FixedField{&C::moe_router_score_function, "sigmoid"},
                                                              FixedField{&C::moe_router_enable_expert_bias, true}});

}  // namespace

constinit const Family kDeepseekV2{.model_type = "deepseek_v2",
                                   .architecture = "DeepseekV2ForCausalLM",
                                   .structure = kV2Structure,
                                   .keys = kV2Keys,
                                   .required = kV2Required,
                                   .activation_keys = kHiddenAct,
                                   .before = kMoeBefore,
                                   .layer = kLayer,
                                   .after = kMoeAfter,
                                   .expert_layers = ExpertLayers::kAfterFirst,
                                   .shared_experts_key = "n_shared_experts",
                                   .about = "latent attention; first layers dense; shared experts"};

constinit const Family kDeepseekV3{.model_type = "deepseek_v3",
                                   .architecture = "DeepseekV3ForCausalLM",
                                   .structure = kV3Structure,
                                   .keys = kV3Keys,
                                   .required = kV3Required,
                                   .activation_keys = kHiddenAct,
                                   .before = kMoeBefore,
                                   .layer = kLayer,
                                   .after = kMoeAfter,
                                   .expert_layers = ExpertLayers::kAfterFirst,
                                   .shared_experts_key = "n_shared_experts",
                                   .mtp_key = "num_nextn_predict_layers",
                                   .mtp_before = kMtpBefore,
                                   .mtp_after = kMtpAfter,
                                   .about =
                                       "as deepseek_v2, with a bias for choosing experts and multi-token "
                                       "prediction layers; FP8 weights are read"};

}  // namespace ms::convert
