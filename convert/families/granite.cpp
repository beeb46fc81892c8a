// Granite 3: Llama with multipliers of embeddings, residuals, attention scores and logits (transformers
// models/granite).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kEmbeddings{"embedding_multiplier", &C::embedding_multiplier, 1.0};
constexpr ConfigKey kResiduals{"residual_multiplier", &C::residual_multiplier, 1.0};
constexpr ConfigKey kScores{"attention_multiplier", &C::softmax_scale, 1.0};
constexpr ConfigKey kLogits{"logits_scaling", &C::logits_scaling, 1.0};
constexpr std::array kKeys = {
    kHiddenSize,        kIntermediateSize, kNumHiddenLayers,  kVocabSize,     kMaxPositionEmbeddings,
    rms_norm_eps(1e-6), kInitializerRange, kAttentionDropout, kAttentionBias, kDenseBias,
    kMlpBias,           kEmbeddings,       kResiduals,        kScores,        kLogits};

}  // namespace

constinit const Family kGranite{.model_type = "granite",
                                .architecture = "GraniteForCausalLM",
                                .structure = kLlamaStyle,
                                .keys = kKeys,
                                .activation_keys = kHiddenAct,
                                .before = kLlamaBefore,
                                .layer = kLlamaLayer,
                                .after = kLlamaAfter,
                                .about = "multipliers of embeddings, residuals, attention scores and logits"};

}  // namespace ms::convert
