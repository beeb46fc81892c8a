// Qwen2 (biases on q, k and v) and Qwen3 (norms of q and k per head) (transformers models/qwen2, models/qwen3).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr std::array kKeys = {kHiddenSize,        kIntermediateSize, kNumHiddenLayers,
                              kHeadDim,           kVocabSize,        kMaxPositionEmbeddings,
                              rms_norm_eps(1e-6), kInitializerRange, kAttentionDropout};
constexpr std::array<RequiredFlag, 1> kQwen3Required = {{{"attention_bias", false}}};

}  // namespace

constinit const Family kQwen2{.model_type = "qwen2",
                              .architecture = "Qwen2ForCausalLM",
                              .fix =
                                  [](C& config) {
                                    fix_llama_style(config);
                                    config.add_qkv_bias = true;
                                  },
                              .keys = kKeys,
                              .activation_keys = kHiddenAct,
                              .before = kLlamaBefore,
                              .layer = kLlamaLayer,
                              .after = kLlamaAfter,
                              .about = "biases on q, k, v"};

constinit const Family kQwen3{.model_type = "qwen3",
                              .architecture = "Qwen3ForCausalLM",
                              .fix =
                                  [](C& config) {
                                    fix_llama_style(config);
                                    config.qk_layernorm = true;
                                  },
                              .keys = kKeys,
                              .required = kQwen3Required,
                              .activation_keys = kHiddenAct,
                              .default_head_dim = 128,
                              .before = kLlamaBefore,
                              .layer = kLlamaLayer,
                              .after = kLlamaAfter,
                              .about = "norms of q and k, own head size"};

}  // namespace ms::convert
