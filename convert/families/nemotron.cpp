// Nemotron 4 and Minitron: LayerNorm centred on zero, half of a head rotated, an ungated MLP with squared ReLU
// (transformers models/nemotron).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kEpsilon{"norm_eps", &C::norm_epsilon, 1e-5};
constexpr ConfigKey kInitStd{"initializer_range", &C::init_method_std, 0.0134};
constexpr std::array kKeys = {kHiddenSize,       kIntermediateSize,      kNumHiddenLayers, kHeadDim,
                              kVocabSize,        kMaxPositionEmbeddings, kEpsilon,         kInitStd,
                              kAttentionDropout, kAttentionBias,         kDenseBias,       kMlpBias};
constexpr std::array kStructure = {
    FixedField{&C::normalization, "LayerNorm"},      FixedField{&C::apply_layernorm_1p, true},
    FixedField{&C::position_embedding_type, "rope"}, FixedField{&C::squared_relu, true},
    FixedField{&C::add_bias_linear, false},          FixedField{&C::hidden_dropout, 0.0}};
constexpr auto kLayer = joined(
    kProjections, std::array{NameRule{"mlp.up_proj.weight", "mlp.linear_fc1.weight"},
                             NameRule{"mlp.up_proj.bias", "mlp.linear_fc1.bias"}, kDown, kDownBias, kInputNorm,
                             NameRule{"input_layernorm.bias", "self_attention.linear_qkv.layer_norm_bias"}, kMlpNorm,
                             NameRule{"post_attention_layernorm.bias", "mlp.linear_fc1.layer_norm_bias"}});
constexpr std::array kAfter = {NameRule{"norm.weight", "decoder.final_layernorm.weight"},
                               NameRule{"norm.bias", "decoder.final_layernorm.bias"},
                               NameRule{kHfOutput, kOutputLayer}};

}  // namespace

constinit const Family kNemotron{.model_type = "nemotron",
                                 .architecture = "NemotronForCausalLM",
                                 .structure = kStructure,
                                 .keys = kKeys,
                                 .activation_keys = kHiddenAct,
                                 .activation = "relu2",
                                 .default_partial_rotary = 0.5,
                                 .before = kLlamaBefore,
                                 .layer = kLayer,
                                 .after = kAfter,
                                 .about =
                                     "LayerNorm with norms centred on zero, half of a head rotated, an ungated MLP "
                                     "with squared ReLU"};

}  // namespace ms::convert
