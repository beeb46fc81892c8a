// InternLM 2: Llama with its own tensor names, and q, k and v packed by query groups (internlm/internlm2-7b on the hub,
// modeling_internlm2.py).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr std::array kKeys = {kHiddenSize,      kIntermediateSize,      kNumHiddenLayers,
                              kVocabSize,       kMaxPositionEmbeddings, rms_norm_eps(1e-6),
                              kInitializerRange};
constexpr std::array<RequiredFlag, 1> kRequired = {{{"bias", false}}};
constexpr std::array kBefore = {NameRule{"tok_embeddings.weight", kWordEmbeddings}};
constexpr std::array kLayer = {NameRule{"attention.wqkv.weight", "self_attention.linear_qkv.weight"},
                               NameRule{"attention.wo.weight", "self_attention.linear_proj.weight"},
                               NameRule{"feed_forward.w1.weight", "mlp.linear_fc1.weight", Part::kGate},
                               NameRule{"feed_forward.w3.weight", "mlp.linear_fc1.weight", Part::kUp},
                               NameRule{"feed_forward.w2.weight", "mlp.linear_fc2.weight"},
                               NameRule{"attention_norm.weight", "self_attention.linear_qkv.layer_norm_weight"},
                               NameRule{"ffn_norm.weight", "mlp.linear_fc1.layer_norm_weight"}};
constexpr std::array kAfter = {NameRule{"norm.weight", "decoder.final_layernorm.weight"},
                               NameRule{"output.weight", kOutputLayer}};

}  // namespace

constinit const Family kInternLm2{.model_type = "internlm2",
                                  .architecture = "InternLM2ForCausalLM",
                                  .structure = kLlamaStyle,
                                  .keys = kKeys,
                                  .required = kRequired,
                                  .activation_keys = kHiddenAct,
                                  .before = kBefore,
                                  .layer = kLayer,
                                  .after = kAfter,
                                  .about = "its own tensor names; q, k and v in one tensor by query groups"};

}  // namespace ms::convert
