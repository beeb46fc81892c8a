// The shape of a decoder-only transformer, under Megatron's names (megatron/core/transformer/transformer_config.py).
//
// In core because three modules read it: train builds the model, ckpt writes it into the manifest, convert maps it from
// and to a Hugging Face config.json. All fields are listed once (fields()); flags, JSON keys and help come from that
// list.
#pragma once

#include <cstdint>
#include <string>

namespace ms::core {

struct TransformerConfig {
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;  // 0: 4 * hidden_size, or 8/3 of it rounded up to 64 with swiglu
  int64_t num_attention_heads = 0;
  bool group_query_attention = false;   // Megatron wants the switch beside the number
  int64_t num_query_groups = 1;         // key/value heads when group_query_attention, else num_attention_heads
  int64_t kv_channels = 0;              // head size; 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 0;  // 0: the sequence length
  int64_t vocab_size = 0;               // true size; 0: the tokenizer's
  int64_t make_vocab_size_divisible_by = 128;
  std::string normalization = "LayerNorm";
  double norm_epsilon = 1e-5;
  std::string position_embedding_type = "learned_absolute";
  double rotary_base = 10000.0;
  double rotary_percent = 1.0;
  bool swiglu = false;
  bool add_bias_linear = true;
  bool add_qkv_bias = false;
  bool qk_layernorm = false;  // RMSNorm of q and k per head (Qwen3)
  bool untie_embeddings_and_output_weights = false;
  double init_method_std = 0.02;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = TransformerConfig;
    field("num_layers", &C::num_layers, "Transformer layers");
    field("hidden_size", &C::hidden_size, "Width of the residual stream");
    field("ffn_hidden_size", &C::ffn_hidden_size,
          "Width of the MLP; 0: 4 x hidden (with --swiglu 8/3 x, rounded up to 64)");
    field("num_attention_heads", &C::num_attention_heads, "Query heads");
    field("group_query_attention", &C::group_query_attention, "Share key/value heads among query heads");
    field("num_query_groups", &C::num_query_groups, "Key/value heads, with --group-query-attention");
    field("kv_channels", &C::kv_channels, "Head size; 0: hidden / heads");
    field("max_position_embeddings", &C::max_position_embeddings, "Longest sequence of the model; 0: --seq-length");
    field("vocab_size", &C::vocab_size, "True vocabulary size; 0: the tokenizer's");
    field("make_vocab_size_divisible_by", &C::make_vocab_size_divisible_by,
          "Pad the vocabulary to a multiple of this x TP");
    field("normalization", &C::normalization, "LayerNorm or RMSNorm");
    field("norm_epsilon", &C::norm_epsilon, "Epsilon of the norms");
    field("position_embedding_type", &C::position_embedding_type, "learned_absolute, rope or none");
    field("rotary_base", &C::rotary_base, "Base of the rotary angles");
    field("rotary_percent", &C::rotary_percent, "Share of the head that is rotated");
    field("swiglu", &C::swiglu, "Gated MLP: silu(gate) * up");
    field("add_bias_linear", &C::add_bias_linear, "Biases in all linear layers");
    field("add_qkv_bias", &C::add_qkv_bias, "Bias in the QKV projection only");
    field("qk_layernorm", &C::qk_layernorm, "Norm of q and k per head");
    field("untie_embeddings_and_output_weights", &C::untie_embeddings_and_output_weights,
          "Own weight for the output layer");
    field("init_method_std", &C::init_method_std, "Standard deviation of the initial weights");
  }

  bool operator==(const TransformerConfig&) const = default;

  int64_t head_dim() const { return kv_channels; }  // after resolve()
  int64_t query_groups() const { return group_query_attention ? num_query_groups : num_attention_heads; }
  int64_t qkv_rows() const { return (num_attention_heads + 2 * query_groups()) * kv_channels; }

  // Fills the fields that default to 0 from the others. seq_length: tokens, for max_position_embeddings.
  void resolve(int64_t seq_length);
  // Vocabulary rows padded to make_vocab_size_divisible_by x tensor_model_parallel_size (checkpoints.md 7.5).
  int64_t padded_vocab_size(int tensor_model_parallel_size) const;
  // Cross-field rules; throws kInvalidArgument (contradictions) or kUnsupported (not built yet), naming the flags.
  void validate() const;
  // Trainable parameters of the whole model, with the padded vocabulary of the given TP.
  int64_t num_parameters(int tensor_model_parallel_size) const;
};

}  // namespace ms::core
