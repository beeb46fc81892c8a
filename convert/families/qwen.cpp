// Qwen2 (biases on q, k and v) and Qwen3 (norms of q and k per head) (transformers models/qwen2, models/qwen3).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr std::array kKeys = {kHiddenSize,        kIntermediateSize, kNumHiddenLayers,
                              kHeadDim,           kVocabSize,        kMaxPositionEmbeddings,
                              rms_norm_eps(1e-6), kInitializerRange, kAttentionDropout};
constexpr auto kQwen3Keys = joined(kKeys, std::array{kAttentionBias, kDenseBias});
constexpr auto kQwen2Structure = joined(kLlamaStyle, std::array{FixedField{&C::add_qkv_bias, true}});
constexpr auto kQwen3Structure = joined(kLlamaStyle, std::array{FixedField{&C::qk_layernorm, true}});

}  // namespace

constinit const Family kQwen2{.model_type = "qwen2",
                              .architecture = "Qwen2ForCausalLM",
                              .structure = kQwen2Structure,
                              .keys = kKeys,
                              .activation_keys = kHiddenAct,
                              .before = kLlamaBefore,
                              .layer = kLlamaLayer,
                              .after = kLlamaAfter,
                              .about = "biases on q, k, v"};

constinit const Family kQwen3{.model_type = "qwen3",
                              .architecture = "Qwen3ForCausalLM",
                              .structure = kQwen3Structure,
                              .keys = kQwen3Keys,
                              .activation_keys = kHiddenAct,
                              .default_head_dim = 128,
                              .before = kLlamaBefore,
                              .layer = kLlamaLayer,
                              .after = kLlamaAfter,
                              .about = "norms of q and k, own head size"};

}  // namespace ms::convert
