// GPT-NeoX and Pythia: parallel attention and MLP, LayerNorm, biases, a quarter of a head rotated, q, k and v packed
// head by head (transformers models/gpt_neox).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kEpsilon{"layer_norm_eps", &C::norm_epsilon, 1e-5};
constexpr ConfigKey kHiddenDropout{"hidden_dropout", &C::hidden_dropout, 0.0};
constexpr ConfigKey kParallel{"use_parallel_residual", &C::parallel_residual, 1.0};
constexpr std::array kKeys = {
    kHiddenSize, kIntermediateSize, kNumHiddenLayers, kVocabSize,        kMaxPositionEmbeddings,
    kEpsilon,    kInitializerRange, kHiddenDropout,   kAttentionDropout, kParallel};
constexpr std::array<RequiredFlag, 1> kRequired = {{{"attention_bias", true}}};
constexpr std::array kStructure = {FixedField{&C::normalization, "LayerNorm"},
                                   FixedField{&C::position_embedding_type, "rope"},
                                   FixedField{&C::add_bias_linear, true}};
constexpr std::array kBefore = {NameRule{"embed_in.weight", kWordEmbeddings}};
constexpr std::array kLayer = {kInputNorm,
                               NameRule{"input_layernorm.bias", "self_attention.linear_qkv.layer_norm_bias"},
                               kMlpNorm,
                               NameRule{"post_attention_layernorm.bias", "mlp.linear_fc1.layer_norm_bias"},
                               NameRule{"attention.query_key_value.weight", "self_attention.linear_qkv.weight"},
                               NameRule{"attention.query_key_value.bias", "self_attention.linear_qkv.bias"},
                               NameRule{"attention.dense.weight", "self_attention.linear_proj.weight"},
                               NameRule{"attention.dense.bias", "self_attention.linear_proj.bias"},
                               NameRule{"mlp.dense_h_to_4h.weight", "mlp.linear_fc1.weight"},
                               NameRule{"mlp.dense_h_to_4h.bias", "mlp.linear_fc1.bias"},
                               NameRule{"mlp.dense_4h_to_h.weight", "mlp.linear_fc2.weight"},
                               NameRule{"mlp.dense_4h_to_h.bias", "mlp.linear_fc2.bias"}};
// transformers 5 names it lm_head.weight in memory and writes embed_out.weight.
constexpr std::array kAfter = {NameRule{"final_layer_norm.weight", "decoder.final_layernorm.weight"},
                               NameRule{"final_layer_norm.bias", "decoder.final_layernorm.bias"},
                               NameRule{.hf = "embed_out.weight", .canonical = kOutputLayer, .also = kHfOutput}};

}  // namespace

constinit const Family kGptNeox{.model_type = "gpt_neox",
                                .architecture = "GPTNeoXForCausalLM",
                                .structure = kStructure,
                                .keys = kKeys,
                                .required = kRequired,
                                .groups_key = "",
                                .activation_keys = kHiddenAct,
                                .activation = "gelu",
                                .default_partial_rotary = 0.25,
                                .rotary_base_key = "rotary_emb_base",
                                .partial_rotary_key = "rotary_pct",
                                .prefix = "gpt_neox.",
                                .before = kBefore,
                                .layer = kLayer,
                                .after = kAfter,
                                .about =
                                    "parallel attention and MLP, LayerNorm, biases, a quarter of a head rotated, "
                                    "q, k and v in one tensor head by head"};

}  // namespace ms::convert
