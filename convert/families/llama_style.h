// Keys of config.json and tensor names shared by the families that descend from Llama.
#pragma once

#include <array>

#include "convert/family.h"

namespace ms::convert {

using C = core::TransformerConfig;

inline constexpr ConfigKey kHiddenSize{"hidden_size", &C::hidden_size};
inline constexpr ConfigKey kIntermediateSize{"intermediate_size", &C::ffn_hidden_size};
inline constexpr ConfigKey kNumHiddenLayers{"num_hidden_layers", &C::num_layers};
inline constexpr ConfigKey kVocabSize{"vocab_size", &C::vocab_size};
inline constexpr ConfigKey kMaxPositionEmbeddings{"max_position_embeddings", &C::max_position_embeddings};
inline constexpr ConfigKey kInitializerRange{"initializer_range", &C::init_method_std, 0.02};
inline constexpr ConfigKey kAttentionDropout{"attention_dropout", &C::attention_dropout, 0.0};
inline constexpr ConfigKey kHeadDim{"head_dim", &C::kv_channels, 0.0};

// attention_bias: of q, k, v and o.
inline constexpr ConfigKey kAttentionBias{"attention_bias", &C::add_qkv_bias, 0.0};
inline constexpr ConfigKey kDenseBias{"attention_bias", &C::add_dense_bias, 0.0};
inline constexpr ConfigKey kMlpBias{"mlp_bias", &C::add_mlp_bias, 0.0};

constexpr ConfigKey rms_norm_eps(double absent) { return {"rms_norm_eps", &C::norm_epsilon, absent}; }

inline constexpr std::array<std::string_view, 1> kHiddenAct = {"hidden_act"};

// Concatenates tables.
template <class T, size_t... N>
constexpr auto joined(const std::array<T, N>&... parts) {
  std::array<T, (N + ...)> all{};
  size_t next = 0;
  const auto append = [&](const auto& part) {
    for (const T& rule : part) all[next++] = rule;
  };
  (append(parts), ...);
  return all;
}

// RMSNorm, RoPE, SwiGLU, no biases.
inline constexpr std::array kLlamaStyle = {
    FixedField{&C::normalization, "RMSNorm"}, FixedField{&C::position_embedding_type, "rope"},
    FixedField{&C::swiglu, true}, FixedField{&C::add_bias_linear, false}, FixedField{&C::hidden_dropout, 0.0}};

inline constexpr NameRule kQuery{"self_attn.q_proj.weight", "self_attention.linear_qkv.weight", Part::kQuery};
inline constexpr NameRule kQueryBias{"self_attn.q_proj.bias", "self_attention.linear_qkv.bias", Part::kQuery};
inline constexpr NameRule kKey{"self_attn.k_proj.weight", "self_attention.linear_qkv.weight", Part::kKey};
inline constexpr NameRule kKeyBias{"self_attn.k_proj.bias", "self_attention.linear_qkv.bias", Part::kKey};
inline constexpr NameRule kValue{"self_attn.v_proj.weight", "self_attention.linear_qkv.weight", Part::kValue};
inline constexpr NameRule kValueBias{"self_attn.v_proj.bias", "self_attention.linear_qkv.bias", Part::kValue};
inline constexpr NameRule kPackedQkv{"self_attn.qkv_proj.weight", "self_attention.linear_qkv.weight", Part::kQkv};
inline constexpr NameRule kProjection{"self_attn.o_proj.weight", "self_attention.linear_proj.weight"};
inline constexpr NameRule kProjectionBias{"self_attn.o_proj.bias", "self_attention.linear_proj.bias"};
inline constexpr NameRule kQueryNorm{"self_attn.q_norm.weight", "self_attention.q_layernorm.weight"};
inline constexpr NameRule kKeyNorm{"self_attn.k_norm.weight", "self_attention.k_layernorm.weight"};
inline constexpr NameRule kGate{"mlp.gate_proj.weight", "mlp.linear_fc1.weight", Part::kGate};
inline constexpr NameRule kUp{"mlp.up_proj.weight", "mlp.linear_fc1.weight", Part::kUp};
inline constexpr NameRule kGateBias{"mlp.gate_proj.bias", "mlp.linear_fc1.bias", Part::kGate};
inline constexpr NameRule kUpBias{"mlp.up_proj.bias", "mlp.linear_fc1.bias", Part::kUp};
inline constexpr NameRule kGateUp{"mlp.gate_up_proj.weight", "mlp.linear_fc1.weight"};
inline constexpr NameRule kDown{"mlp.down_proj.weight", "mlp.linear_fc2.weight"};
inline constexpr NameRule kDownBias{"mlp.down_proj.bias", "mlp.linear_fc2.bias"};
inline constexpr NameRule kInputNorm{"input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight"};
inline constexpr NameRule kMlpNorm{"post_attention_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"};

inline constexpr std::array kLlamaBefore = {NameRule{"embed_tokens.weight", "embedding.word_embeddings.weight"}};
inline constexpr std::array kProjections = {kQuery, kQueryBias, kKey,        kKeyBias,
                                            kValue, kValueBias, kProjection, kProjectionBias};
inline constexpr std::array kLlamaLayer =
    joined(kProjections,
           std::array{kQueryNorm, kKeyNorm, kGate, kGateBias, kUp, kUpBias, kDown, kDownBias, kInputNorm, kMlpNorm});
inline constexpr std::array kLlamaAfter = {NameRule{"norm.weight", "decoder.final_layernorm.weight"},
                                           NameRule{kHfOutput, kOutputLayer}};

}  // namespace ms::convert
