// GLM-4: half of each head rotated, in neighbouring pairs; glm4 (GLM-4-0414) also with norms after both blocks
// (transformers models/glm, models/glm4).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kQkvBias{"attention_bias", &C::add_qkv_bias, 1.0};
constexpr std::array kKeys = {kHiddenSize, kIntermediateSize,      kNumHiddenLayers,         kHeadDim,
                              kVocabSize,  kMaxPositionEmbeddings, rms_norm_eps(1.5625e-07), kInitializerRange,
                              kQkvBias,    kAttentionDropout};
constexpr std::array kGlmLayer = {kQuery,      kQueryBias, kKey,  kKeyBias,   kValue,  kValueBias,
                                  kProjection, kGateUp,    kDown, kInputNorm, kMlpNorm};
constexpr std::array kGlm4Layer = {kQuery,
                                   kQueryBias,
                                   kKey,
                                   kKeyBias,
                                   kValue,
                                   kValueBias,
                                   kProjection,
                                   kGateUp,
                                   kDown,
                                   kInputNorm,
                                   kMlpNorm,
                                   NameRule{"post_self_attn_layernorm.weight", "post_self_attn_layernorm.weight"},
                                   NameRule{"post_mlp_layernorm.weight", "post_mlp_layernorm.weight"}};

constexpr auto kGlmStructure = joined(kLlamaStyle, std::array{FixedField{&C::rotary_interleaved, true}});
constexpr auto kGlm4Structure = joined(kGlmStructure, std::array{FixedField{&C::post_norm, true}});

}  // namespace

constinit const Family kGlm{.model_type = "glm",
                            .architecture = "GlmForCausalLM",
                            .structure = kGlmStructure,
                            .keys = kKeys,
                            .activation_keys = kHiddenAct,
                            .default_head_dim = 128,
                            .default_partial_rotary = 0.5,
                            .before = kLlamaBefore,
                            .layer = kGlmLayer,
                            .after = kLlamaAfter,
                            .about = "half of a head rotated in neighbouring pairs"};

constinit const Family kGlm4{.model_type = "glm4",
                             .architecture = "Glm4ForCausalLM",
                             .structure = kGlm4Structure,
                             .keys = kKeys,
                             .activation_keys = kHiddenAct,
                             .default_head_dim = 128,
                             .default_partial_rotary = 0.5,
                             .before = kLlamaBefore,
                             .layer = kGlm4Layer,
                             .after = kLlamaAfter,
                             .about = "as glm, with norms after both blocks"};

}  // namespace ms::convert
