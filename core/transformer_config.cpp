#include "core/transformer_config.h"

#include "core/error.h"

namespace ms::core {

void TransformerConfig::resolve(int64_t seq_length) {
  if (kv_channels == 0 && num_attention_heads > 0) kv_channels = hidden_size / num_attention_heads;
  if (ffn_hidden_size == 0) ffn_hidden_size = swiglu ? (hidden_size * 8 / 3 + 63) / 64 * 64 : 4 * hidden_size;
  if (max_position_embeddings == 0) max_position_embeddings = seq_length;
}

int64_t TransformerConfig::padded_vocab_size(int tensor_model_parallel_size) const {
  const int64_t multiple = make_vocab_size_divisible_by * tensor_model_parallel_size;
  return (vocab_size + multiple - 1) / multiple * multiple;
}

void TransformerConfig::validate() const {
  const auto refuse = [](ErrorCode code, const auto&... parts) { throw Error(code, cat(parts...)); };
  const auto positive = [&](int64_t value, const char* flag) {
    if (value <= 0) refuse(ErrorCode::kInvalidArgument, flag, " is ", value, ": give a positive number");
  };
  positive(num_layers, "--num-layers");
  positive(hidden_size, "--hidden-size");
  positive(num_attention_heads, "--num-attention-heads");
  positive(kv_channels, "--kv-channels");
  positive(ffn_hidden_size, "--ffn-hidden-size");
  positive(query_groups(), "--num-query-groups");
  positive(make_vocab_size_divisible_by, "--make-vocab-size-divisible-by");
  positive(vocab_size, "--vocab-size");
  if (!group_query_attention && num_query_groups != 1 && num_query_groups != num_attention_heads) {
    refuse(ErrorCode::kInvalidArgument, "--num-query-groups ", num_query_groups,
           " has no effect without --group-query-attention: give both, or neither");
  }
  if (num_attention_heads % query_groups() != 0) {
    refuse(ErrorCode::kInvalidArgument, "--num-attention-heads ", num_attention_heads,
           " is not a multiple of --num-query-groups ", query_groups());
  }
  if (kv_channels % 2 != 0) {
    refuse(ErrorCode::kInvalidArgument, "--kv-channels ", kv_channels, " is odd; rotary embedding turns pairs");
  }
  if (normalization != "RMSNorm" && normalization != "LayerNorm") {
    refuse(ErrorCode::kInvalidArgument, "--normalization ", normalization, ": expected RMSNorm or LayerNorm");
  }
  if (normalization != "RMSNorm") {
    refuse(ErrorCode::kUnsupported, "--normalization ", normalization,
           " is not supported yet; use --normalization RMSNorm");
  }
  if (position_embedding_type != "rope") {
    refuse(ErrorCode::kUnsupported, "--position-embedding-type ", position_embedding_type,
           " is not supported yet; use --position-embedding-type rope");
  }
  if (rotary_percent != 1.0) {
    refuse(ErrorCode::kUnsupported, "--rotary-percent ", rotary_percent, " is not supported yet; use 1.0");
  }
  if (!swiglu) refuse(ErrorCode::kUnsupported, "an MLP without a gate is not supported yet; use --swiglu");
  if (add_bias_linear) {
    refuse(ErrorCode::kUnsupported,
           "biases in all linear layers are not supported yet; use --disable-bias-linear (and --add-qkv-bias)");
  }
}

int64_t TransformerConfig::num_parameters(int tensor_model_parallel_size) const {
  const int64_t attention = hidden_size * qkv_rows() + (add_qkv_bias ? qkv_rows() : 0) +
                            hidden_size * num_attention_heads * kv_channels + (qk_layernorm ? 2 * kv_channels : 0);
  const int64_t mlp = 3 * hidden_size * ffn_hidden_size;
  const int64_t embedding = padded_vocab_size(tensor_model_parallel_size) * hidden_size;
  return num_layers * (attention + mlp + 2 * hidden_size) + hidden_size +
         embedding * (untie_embeddings_and_output_weights ? 2 : 1);
}

}  // namespace ms::core
