// OLMo 2: norms only after attention and MLP, one norm over all heads of q and one over those of k (transformers
// models/olmo2). OLMoE: these norms of q and k, and experts (models/olmoe).
#include "convert/families/families.h"
#include "convert/families/moe_style.h"

namespace ms::convert {
namespace {

constexpr std::array kKeys = {
    kHiddenSize,        kIntermediateSize, kNumHiddenLayers,  kVocabSize,     kMaxPositionEmbeddings,
    rms_norm_eps(1e-5), kInitializerRange, kAttentionDropout, kAttentionBias, kDenseBias};
constexpr auto kStructure =
    joined(kLlamaStyle, std::array{FixedField{&C::pre_norm, false}, FixedField{&C::post_norm, true},
                                   FixedField{&C::qk_layernorm, true}, FixedField{&C::qk_layernorm_all_heads, true}});
constexpr auto kLayer =
    joined(kProjections, std::array{kQueryNorm, kKeyNorm, kGate, kUp, kDown,
                                    NameRule{"post_attention_layernorm.weight", "post_self_attn_layernorm.weight"},
                                    NameRule{"post_feedforward_layernorm.weight", "post_mlp_layernorm.weight"}});

constexpr ConfigKey kExpertSize{"intermediate_size", &C::moe_ffn_hidden_size};
constexpr ConfigKey kExperts{
    .hf = "num_experts", .field = &C::num_experts, .absent = 64.0, .also = "num_local_experts"};
constexpr ConfigKey kTopk{"num_experts_per_tok", &C::moe_router_topk, 8.0};
constexpr std::array kOlmoeKeys = {kHiddenSize,
                                   kIntermediateSize,
                                   kExpertSize,
                                   kNumHiddenLayers,
                                   kVocabSize,
                                   kMaxPositionEmbeddings,
                                   rms_norm_eps(1e-5),
                                   kInitializerRange,
                                   kExperts,
                                   kTopk,
                                   norm_topk_prob(false),
                                   kAttentionDropout};
constexpr std::array<RequiredFlag, 1> kOlmoeRequired = {{{"attention_bias", false}}};
constexpr auto kOlmoeStructure =
    joined(kLlamaStyle, std::array{FixedField{&C::qk_layernorm, true}, FixedField{&C::qk_layernorm_all_heads, true}});
constexpr auto kOlmoeLayer = joined(kMoeInputNorm, kMoeMlp, kMoeMlpNorm, kMoeAttention);

}  // namespace

constinit const Family kOlmo2{.model_type = "olmo2",
                              .architecture = "Olmo2ForCausalLM",
                              .structure = kStructure,
                              .keys = kKeys,
                              .activation_keys = kHiddenAct,
                              .before = kLlamaBefore,
                              .layer = kLayer,
                              .after = kLlamaAfter,
                              .about = "norms only after attention and MLP, norms over all heads of q and of k"};

constinit const Family kOlmoe{.model_type = "olmoe",
                              .architecture = "OlmoeForCausalLM",
                              .structure = kOlmoeStructure,
                              .keys = kOlmoeKeys,
                              .required = kOlmoeRequired,
                              .activation_keys = kHiddenAct,
                              .before = kMoeBefore,
                              .layer = kOlmoeLayer,
                              .after = kMoeAfter,
                              .expert_layers = ExpertLayers::kAll,
                              .about = "experts in every layer, norms over all heads of q and of k"};

}  // namespace ms::convert
