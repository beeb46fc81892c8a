// GLM-4.5: experts chosen as in DeepSeek-V3, ordinary attention, multi-token prediction (transformers models/glm4_moe).
#include "convert/families/families.h"
#include "convert/families/moe_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kQkvBias{"attention_bias", &C::add_qkv_bias, 0.0};
constexpr ConfigKey kQkNorm{"use_qk_norm", &C::qk_layernorm, 0.0};
constexpr std::array kKeys = {
    kHiddenSize,      kIntermediateSize,      kMoeIntermediateSize, kNumHiddenLayers,           kHeadDim,
    kVocabSize,       kMaxPositionEmbeddings, rms_norm_eps(1e-5),   kInitializerRange,          kRoutedExperts,
    kExpertsPerToken, kExpertGroups,          kChosenGroups,        routed_scaling_factor(1.0), kQkvBias,
    kQkNorm,          kAttentionDropout};
constexpr std::array<RequiredFlag, 1> kRequired = {{{"norm_topk_prob", true}}};
constexpr auto kLayer = joined(kMoeInputNorm, kMoeMlp, kSharedExperts, kMoeMlpNorm, kMoeAttention);
constexpr auto kStructure = joined(kLlamaStyle, std::array{FixedField{&C::moe_router_score_function, "sigmoid"},
                                                           FixedField{&C::moe_router_enable_expert_bias, true}});

}  // namespace

constinit const Family kGlm4Moe{.model_type = "glm4_moe",
                                .architecture = "Glm4MoeForCausalLM",
                                .structure = kStructure,
                                .keys = kKeys,
                                .required = kRequired,
                                .activation_keys = kHiddenAct,
                                .default_partial_rotary = 0.5,
                                .before = kMoeBefore,
                                .layer = kLayer,
                                .after = kMoeAfter,
                                .expert_layers = ExpertLayers::kAfterFirst,
                                .shared_experts_key = "n_shared_experts",
                                .mtp_key = "num_nextn_predict_layers",
                                .mtp_before = kMtpBefore,
                                .mtp_after = kMtpAfter,
                                .about =
                                    "first layers dense; a bias for choosing experts, shared experts; "
                                    "multi-token prediction layers"};

}  // namespace ms::convert
