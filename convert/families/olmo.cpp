// OLMo 2: norms only after attention and MLP, one norm over all heads of q and one over those of k (transformers
// models/olmo2).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

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

}  // namespace ms::convert
