// SmolLM3: Llama with layers without RoPE (transformers models/smollm3).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr std::array kKeys = {kHiddenSize,       kIntermediateSize,      kNumHiddenLayers,   kHeadDim,
                              kVocabSize,        kMaxPositionEmbeddings, rms_norm_eps(1e-6), kInitializerRange,
                              kAttentionDropout, kAttentionBias,         kDenseBias,         kMlpBias};

}  // namespace

constinit const Family kSmolLm3{.model_type = "smollm3",
                                .architecture = "SmolLM3ForCausalLM",
                                .structure = kLlamaStyle,
                                .keys = kKeys,
                                .activation_keys = kHiddenAct,
                                .default_rotary_base = 2000000.0,
                                .rope_layers_key = "no_rope_layers",
                                .default_tied = true,
                                .before = kLlamaBefore,
                                .layer = kLlamaLayer,
                                .after = kLlamaAfter,
                                .about = "layers without RoPE"};

}  // namespace ms::convert
