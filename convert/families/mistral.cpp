// Mistral: Llama with a sliding window (transformers models/mistral).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kWindow{"sliding_window", &C::sliding_window, 4096.0, /*null_is_none=*/true};
constexpr std::array kKeys = {kHiddenSize, kIntermediateSize,      kNumHiddenLayers,   kHeadDim,
                              kVocabSize,  kMaxPositionEmbeddings, rms_norm_eps(1e-6), kInitializerRange,
                              kWindow,     kAttentionDropout};

}  // namespace

constinit const Family kMistral{.model_type = "mistral",
                                .architecture = "MistralForCausalLM",
                                .structure = kLlamaStyle,
                                .keys = kKeys,
                                .activation_keys = kHiddenAct,
                                .before = kLlamaBefore,
                                .layer = kLlamaLayer,
                                .after = kLlamaAfter,
                                .about = "a sliding window"};

}  // namespace ms::convert
