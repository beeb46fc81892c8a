#include "core/transformer_config.h"

#include <cstdint>
#include <utility>

#include "core/error.h"

namespace ms::core {
namespace {

constexpr int64_t kMostSize = INT32_MAX;              // of each size: products of two fit
constexpr double kMostParameters = int64_t{1} << 53;  // exact in JSON, and counted in 64 bits

// As num_parameters, but nothing wraps; without what does not matter beside a matrix.
double about_num_parameters(const TransformerConfig& c) {
  const auto hidden = static_cast<double>(c.hidden_size);
  const double heads = static_cast<double>(c.num_attention_heads) + static_cast<double>(c.query_groups());
  const double layer = hidden * (2 * heads * static_cast<double>(c.kv_channels) +
                                 (c.gated() ? 3 : 2) * static_cast<double>(c.ffn_hidden_size));
  return static_cast<double>(c.num_layers) * layer +
         hidden * (2 * static_cast<double>(c.vocab_size) + static_cast<double>(c.max_position_embeddings));
}

}  // namespace

void TransformerConfig::resolve(int64_t seq_length) {
  if (hidden_size < 0 || hidden_size > kMostSize) return;  // for validate() to refuse
  if (kv_channels == 0 && num_attention_heads > 0) kv_channels = hidden_size / num_attention_heads;
  if (ffn_hidden_size == 0) ffn_hidden_size = gated() ? (hidden_size * 8 / 3 + 63) / 64 * 64 : 4 * hidden_size;
  if (max_position_embeddings == 0) max_position_embeddings = seq_length;
  if (rope_scaling_original_max_position_embeddings == 0 &&
      (rope_scaling_type == "llama3" || rope_scaling_type == "yarn")) {
    rope_scaling_original_max_position_embeddings = max_position_embeddings;
  }
  if (gated()) bias_gelu_fusion = true;  // it is about the GELU of an MLP without a gate: one value for one model
}

int64_t TransformerConfig::padded_vocab_size(int tensor_model_parallel_size) const {
  const int64_t multiple = make_vocab_size_divisible_by * tensor_model_parallel_size;
  return (vocab_size + multiple - 1) / multiple * multiple;
}

void TransformerConfig::validate() const {
  const auto refuse = [](ErrorCode code, const auto&... parts) { throw Error(code, cat(parts...)); };
  const auto positive = [&](int64_t value, const char* flag) {
    if (value <= 0) refuse(ErrorCode::kInvalidArgument, flag, " is ", value, ": give a positive number");
    if (value > kMostSize) refuse(ErrorCode::kInvalidArgument, flag, " is ", value, ": at most ", kMostSize);
  };
  positive(num_layers, "--num-layers");
  positive(hidden_size, "--hidden-size");
  positive(num_attention_heads, "--num-attention-heads");
  positive(kv_channels, "--kv-channels");
  positive(ffn_hidden_size, "--ffn-hidden-size");
  positive(query_groups(), "--num-query-groups");
  positive(make_vocab_size_divisible_by, "--make-vocab-size-divisible-by");
  positive(vocab_size, "--vocab-size");
  if (max_position_embeddings < 0 || max_position_embeddings > kMostSize) {
    refuse(ErrorCode::kInvalidArgument, "--max-position-embeddings is ", max_position_embeddings, ": expected 0 to ",
           kMostSize);
  }
  if (const double parameters = about_num_parameters(*this); parameters > kMostParameters) {
    refuse(ErrorCode::kInvalidArgument, "the sizes given make a model of about ", parameters, " parameters: at most ",
           kMostParameters, ". See --hidden-size, --ffn-hidden-size, --kv-channels and --vocab-size");
  }
  if (!group_query_attention && num_query_groups != 1 && num_query_groups != num_attention_heads) {
    refuse(ErrorCode::kInvalidArgument, "--num-query-groups ", num_query_groups,
           " has no effect without --group-query-attention: give both, or neither");
  }
  if (num_attention_heads % query_groups() != 0) {
    refuse(ErrorCode::kInvalidArgument, "--num-attention-heads ", num_attention_heads,
           " is not a multiple of --num-query-groups ", query_groups());
  }
  if (normalization != "RMSNorm" && normalization != "LayerNorm") {
    refuse(ErrorCode::kInvalidArgument, "--normalization ", normalization, ": expected RMSNorm or LayerNorm");
  }
  if (position_embedding_type == "alibi" || position_embedding_type == "relative") {
    refuse(ErrorCode::kUnsupported, "--position-embedding-type ", position_embedding_type,
           " is not supported yet; use learned_absolute, rope or none");
  }
  if (!has_learned_positions() && !has_rotary_embedding() && position_embedding_type != "none") {
    refuse(ErrorCode::kInvalidArgument, "--position-embedding-type ", position_embedding_type,
           ": expected learned_absolute, rope or none");
  }
  if (swiglu + geglu + gelu_tanh > 1) {
    refuse(ErrorCode::kInvalidArgument, "--swiglu, --geglu and --gelu-tanh exclude each other");
  }
  if (sliding_window < 0 || interleave_sliding_window < 0 || (sliding_window > 0 && interleave_sliding_window > 0)) {
    refuse(ErrorCode::kInvalidArgument, "--sliding-window ", sliding_window, " and --interleave-sliding-window ",
           interleave_sliding_window, ": give one of them, a positive number of tokens");
  }
  for (const auto& [value, flag] :
       {std::pair{hidden_dropout, "--hidden-dropout"}, std::pair{attention_dropout, "--attention-dropout"}}) {
    if (!(value >= 0 && value < 1)) refuse(ErrorCode::kInvalidArgument, flag, " ", value, ": expected [0, 1)");
  }
  for (const auto& [value, flag] : {std::pair{query_pre_attn_scalar, "--query-pre-attn-scalar"},
                                    std::pair{attn_logit_softcapping, "--attn-logit-softcapping"},
                                    std::pair{output_logit_softcapping, "--output-logit-softcapping"}}) {
    if (!(value >= 0)) refuse(ErrorCode::kInvalidArgument, flag, " ", value, ": at least 0");
  }
  validate_rotary_embedding();
}

void TransformerConfig::validate_rotary_embedding() const {
  const auto refuse = [](const auto&... parts) { throw Error(ErrorCode::kInvalidArgument, cat(parts...)); };
  const std::string& type = rope_scaling_type;
  if (type != "none" && type != "linear" && type != "dynamic" && type != "llama3" && type != "yarn") {
    refuse("--rope-scaling-type ", type, ": expected none, linear, dynamic, llama3 or yarn");
  }
  if (!has_rotary_embedding()) {
    if (type != "none") refuse("--rope-scaling-type ", type, " needs --position-embedding-type rope");
    return;
  }
  if (!(rotary_percent > 0 && rotary_percent <= 1) || rotary_dim() < 2) {
    refuse("--rotary-percent ", rotary_percent, " of --kv-channels ", kv_channels,
           ": expected a share in (0, 1] that leaves a pair to rotate");
  }
  if (kv_channels % 2 != 0 && rotary_percent == 1.0) {
    refuse("--kv-channels ", kv_channels, " is odd; rotary embedding turns pairs");
  }
  if (!(rotary_base > 1)) refuse("--rotary-base ", rotary_base, ": expected a number above 1");
  if (type == "none") {
    if (rope_scaling_factor != 1) {
      refuse("--rope-scaling-factor ", rope_scaling_factor,
             " needs --rope-scaling-type linear, dynamic, llama3 or yarn");
    }
    return;
  }
  if (!(rope_scaling_factor >= 1)) refuse("--rope-scaling-factor ", rope_scaling_factor, ": at least 1");
  if (rope_scaling_original_max_position_embeddings < 0) {
    refuse("--rope-scaling-original-max-position-embeddings ", rope_scaling_original_max_position_embeddings,
           ": at least 0");
  }
  if (type == "llama3" &&
      !(rope_scaling_low_freq_factor > 0 && rope_scaling_high_freq_factor > rope_scaling_low_freq_factor)) {
    refuse("--rope-scaling-high-freq-factor ", rope_scaling_high_freq_factor,
           " must be above --rope-scaling-low-freq-factor ", rope_scaling_low_freq_factor, ", and that above 0");
  }
  if (type == "yarn" && !(rope_scaling_beta_slow > 0 && rope_scaling_beta_fast >= rope_scaling_beta_slow)) {
    refuse("--rope-scaling-beta-fast ", rope_scaling_beta_fast, " must not be below --rope-scaling-beta-slow ",
           rope_scaling_beta_slow, ", and that be above 0");
  }
}

int64_t TransformerConfig::num_parameters(int tensor_model_parallel_size) const {
  const int64_t heads = num_attention_heads * kv_channels;
  const int64_t per_norm = has_layer_norm() ? 2 : 1;  // weight, bias
  int64_t layer = hidden_size * (qkv_rows() + heads + fc1_rows() + ffn_hidden_size);
  if (add_bias_linear || add_qkv_bias) layer += qkv_rows();
  if (add_bias_linear) layer += 2 * hidden_size + fc1_rows();
  layer += per_norm * hidden_size * (post_norm ? 4 : 2);
  if (qk_layernorm) layer += per_norm * 2 * kv_channels;
  const int64_t embedding = padded_vocab_size(tensor_model_parallel_size) * hidden_size;
  const int64_t positions = has_learned_positions() ? max_position_embeddings * hidden_size : 0;
  return num_layers * layer + per_norm * hidden_size + positions +
         embedding * (untie_embeddings_and_output_weights ? 2 : 1);
}

}  // namespace ms::core
