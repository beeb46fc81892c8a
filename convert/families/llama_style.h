// What the families that descend from Llama share: keys of config.json and names of tensors.
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

constexpr ConfigKey rms_norm_eps(double absent) { return {"rms_norm_eps", &C::norm_epsilon, absent}; }

inline constexpr std::array<std::string_view, 1> kHiddenAct = {"hidden_act"};

// RMSNorm, rotary embedding, SwiGLU, no biases.
inline void fix_llama_style(C& config) {
  config.normalization = "RMSNorm";
  config.position_embedding_type = "rope";
  config.swiglu = true;
  config.add_bias_linear = false;
  config.hidden_dropout = 0;
}

inline constexpr NameRule kQuery{"self_attn.q_proj.weight", "self_attention.linear_qkv.weight", Part::kQuery,
                                 ShapeRule::kQkvByHidden};
inline constexpr NameRule kQueryBias{"self_attn.q_proj.bias", "self_attention.linear_qkv.bias", Part::kQuery,
                                     ShapeRule::kQkv, Presence::kQkvBias};
inline constexpr NameRule kKey{"self_attn.k_proj.weight", "self_attention.linear_qkv.weight", Part::kKey,
                               ShapeRule::kQkvByHidden};
inline constexpr NameRule kKeyBias{"self_attn.k_proj.bias", "self_attention.linear_qkv.bias", Part::kKey,
                                   ShapeRule::kQkv, Presence::kQkvBias};
inline constexpr NameRule kValue{"self_attn.v_proj.weight", "self_attention.linear_qkv.weight", Part::kValue,
                                 ShapeRule::kQkvByHidden};
inline constexpr NameRule kValueBias{"self_attn.v_proj.bias", "self_attention.linear_qkv.bias", Part::kValue,
                                     ShapeRule::kQkv, Presence::kQkvBias};
inline constexpr NameRule kPackedQkv{"self_attn.qkv_proj.weight", "self_attention.linear_qkv.weight", Part::kQkv,
                                     ShapeRule::kQkvByHidden};
inline constexpr NameRule kProjection{"self_attn.o_proj.weight", "self_attention.linear_proj.weight", Part::kWhole,
                                      ShapeRule::kHiddenByHeads};
inline constexpr NameRule kQueryNorm{"self_attn.q_norm.weight", "self_attention.q_layernorm.weight", Part::kWhole,
                                     ShapeRule::kHeadDim, Presence::kQkLayernorm};
inline constexpr NameRule kKeyNorm{"self_attn.k_norm.weight", "self_attention.k_layernorm.weight", Part::kWhole,
                                   ShapeRule::kHeadDim, Presence::kQkLayernorm};
inline constexpr NameRule kGate{"mlp.gate_proj.weight", "mlp.linear_fc1.weight", Part::kGate, ShapeRule::kFc1ByHidden};
inline constexpr NameRule kUp{"mlp.up_proj.weight", "mlp.linear_fc1.weight", Part::kUp, ShapeRule::kFc1ByHidden};
inline constexpr NameRule kGateUp{"mlp.gate_up_proj.weight", "mlp.linear_fc1.weight", Part::kWhole,
                                  ShapeRule::kFc1ByHidden};
inline constexpr NameRule kDown{"mlp.down_proj.weight", "mlp.linear_fc2.weight", Part::kWhole, ShapeRule::kHiddenByFfn};
inline constexpr NameRule kInputNorm{"input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight"};
inline constexpr NameRule kMlpNorm{"post_attention_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"};

inline constexpr std::array kLlamaBefore = {
    NameRule{"embed_tokens.weight", "embedding.word_embeddings.weight", Part::kWhole, ShapeRule::kVocabByHidden}};
inline constexpr std::array kLlamaLayer = {kQuery,     kQueryBias, kKey,  kKeyBias, kValue, kValueBias, kProjection,
                                           kQueryNorm, kKeyNorm,   kGate, kUp,      kDown,  kInputNorm, kMlpNorm};
inline constexpr std::array kLlamaAfter = {
    NameRule{"norm.weight", "decoder.final_layernorm.weight"},
    NameRule{kHfOutput, "output_layer.weight", Part::kWhole, ShapeRule::kVocabByHidden, Presence::kUntied}};

}  // namespace ms::convert
