// StarCoder 2: LayerNorm, biases, RoPE, an ungated MLP (transformers models/starcoder2).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kEpsilon{"norm_epsilon", &C::norm_epsilon, 1e-5};
constexpr ConfigKey kWindow{"sliding_window", &C::sliding_window, 0.0, /*null_is_none=*/true};
constexpr ConfigKey kResidualDropout{"residual_dropout", &C::hidden_dropout, 0.0};
constexpr ConfigKey kBiases{"use_bias", &C::add_bias_linear, 1.0};
constexpr std::array kKeys = {
    kHiddenSize, kIntermediateSize, kNumHiddenLayers,  kVocabSize, kMaxPositionEmbeddings, kEpsilon, kInitializerRange,
    kWindow,     kResidualDropout,  kAttentionDropout, kBiases};
constexpr std::array<std::string_view, 4> kHarmless = {"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32",
                                                       "mlp_type", "norm_type"};
constexpr std::array kStructure = {FixedField{&C::normalization, "LayerNorm"},
                                   FixedField{&C::position_embedding_type, "rope"}};
constexpr std::array kLayer = {kQuery,
                               kQueryBias,
                               kKey,
                               kKeyBias,
                               kValue,
                               kValueBias,
                               kProjection,
                               kProjectionBias,
                               NameRule{"mlp.c_fc.weight", "mlp.linear_fc1.weight"},
                               NameRule{"mlp.c_fc.bias", "mlp.linear_fc1.bias"},
                               NameRule{"mlp.c_proj.weight", "mlp.linear_fc2.weight"},
                               NameRule{"mlp.c_proj.bias", "mlp.linear_fc2.bias"},
                               kInputNorm,
                               NameRule{"input_layernorm.bias", "self_attention.linear_qkv.layer_norm_bias"},
                               kMlpNorm,
                               NameRule{"post_attention_layernorm.bias", "mlp.linear_fc1.layer_norm_bias"}};
constexpr std::array kAfter = {NameRule{"norm.weight", "decoder.final_layernorm.weight"},
                               NameRule{"norm.bias", "decoder.final_layernorm.bias"},
                               NameRule{kHfOutput, kOutputLayer}};

}  // namespace

constinit const Family kStarcoder2{.model_type = "starcoder2",
                                   .architecture = "Starcoder2ForCausalLM",
                                   .structure = kStructure,
                                   .keys = kKeys,
                                   .harmless = kHarmless,
                                   .activation_keys = kHiddenAct,
                                   .activation = "gelu_pytorch_tanh",
                                   .default_tied = true,
                                   .before = kLlamaBefore,
                                   .layer = kLayer,
                                   .after = kAfter,
                                   .about = "LayerNorm, biases, RoPE, an ungated MLP; a sliding window"};

}  // namespace ms::convert
