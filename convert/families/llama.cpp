// Llama 1, 2, 3.x (transformers models/llama).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr std::array kKeys = {kHiddenSize,       kIntermediateSize,      kNumHiddenLayers,   kHeadDim,
                              kVocabSize,        kMaxPositionEmbeddings, rms_norm_eps(1e-6), kInitializerRange,
                              kAttentionDropout, kAttentionBias,         kDenseBias,         kMlpBias};

}  // namespace

constinit const Family kLlama{
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .structure = kLlamaStyle,
    .keys = kKeys,
    .activation_keys = kHiddenAct,
    .before = kLlamaBefore,
    .layer = kLlamaLayer,
    .after = kLlamaAfter,
    .about = "1, 2, 3.x; RoPE scaling linear, dynamic, llama3, yarn, longrope, as in every family with RoPE"};

}  // namespace ms::convert
