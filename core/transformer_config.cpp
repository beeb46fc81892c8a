#include "core/transformer_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/transformer_limits.h"

namespace ms::core {
namespace {

// Parses a list of zeros and ones in Python syntax, ([0]*3+[1]*58), of at most `most` entries; nullopt if malformed.
class LayerList {
 public:
  LayerList(std::string_view text, size_t most) : rest_(text), most_(most) {}
  std::optional<std::vector<bool>> read() {
    auto list = sum(0);
    return rest_.empty() ? list : std::nullopt;
  }

 private:
  static constexpr int kMaxDepth = 16;

  bool take(char wanted) {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::optional<int64_t> number() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) return std::nullopt;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }
  std::optional<std::vector<bool>> part(int depth) {
    if (depth > kMaxDepth) return std::nullopt;
    if (take('(')) {
      auto inner = sum(depth + 1);
      return take(')') ? inner : std::nullopt;
    }
    std::vector<bool> list;
    if (!take('[')) return std::nullopt;
    do {
      const auto value = number();
      if (!value || *value > 1 || list.size() == most_) return std::nullopt;
      list.push_back(*value == 1);
    } while (take(','));
    return take(']') ? std::optional(std::move(list)) : std::nullopt;
  }
  std::optional<std::vector<bool>> product(int depth) {
    auto list = part(depth);
    while (list && take('*')) {
      const auto times = number();
      if (!times || static_cast<uint64_t>(*times) > most_ / std::max<size_t>(list->size(), 1)) return std::nullopt;
      std::vector<bool> repeated;
      for (int64_t i = 0; i < *times; ++i) repeated.insert(repeated.end(), list->begin(), list->end());
      list = std::move(repeated);
    }
    return list;
  }
  std::optional<std::vector<bool>> sum(int depth) {
    auto list = product(depth);
    while (list && take('+')) {
      const auto more = product(depth);
      if (!more || list->size() + more->size() > most_) return std::nullopt;
      list->insert(list->end(), more->begin(), more->end());
    }
    return list;
  }

  std::string_view rest_;
  size_t most_;
};

std::vector<bool> every(int64_t frequency, int64_t num_layers) {
  std::vector<bool> layers;
  for (int64_t layer = 0; layer < num_layers; ++layer) layers.push_back(layer % frequency == 0);
  return layers;
}

std::string list_text(const std::vector<bool>& layers) {
  std::string text;
  for (auto run = layers.begin(); run != layers.end();) {
    const auto end = std::find(run, layers.end(), !*run);
    text += cat(text.empty() ? "([" : "+[", *run ? 1 : 0, "]*", end - run);
    run = end;
  }
  return text + ")";
}

// The canonical spelling of such a list.
std::string layer_freq_text(const std::vector<bool>& layers) {
  const auto num_layers = static_cast<int64_t>(layers.size());
  if (layers[0]) {
    const auto second = std::find(layers.begin() + 1, layers.end(), true);
    const int64_t frequency = second - layers.begin();
    if (every(frequency, num_layers) == layers) return std::to_string(frequency);
  }
  return list_text(layers);
}

// True for the last of every `frequency` layers: Megatron's no_rope_freq as a number, and the layers without a window
// under window_attn_skip_freq. 0: no layer.
std::vector<bool> last_of_every(int64_t frequency, int64_t num_layers) {
  std::vector<bool> layers;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    layers.push_back(frequency > 0 && (layer + 1) % frequency == 0);
  }
  return layers;
}

// The canonical spelling of such layers.
std::string last_of_every_text(const std::vector<bool>& layers, bool as_list_is_inverted) {
  const auto num_layers = static_cast<int64_t>(layers.size());
  const auto first = std::find(layers.begin(), layers.end(), true);
  if (first == layers.end()) return "0";
  const int64_t frequency = first - layers.begin() + 1;
  if (last_of_every(frequency, num_layers) == layers) return std::to_string(frequency);
  std::vector<bool> list = layers;
  if (as_list_is_inverted) list.flip();
  return list_text(list);
}

// Parses a number, or a list of zeros and ones; empty if it is neither. inverted: a one in the list means false.
std::vector<bool> read_last_of_every(const std::string& text, int64_t num_layers, bool inverted) {
  int64_t frequency = 0;
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, frequency);
  if (error == std::errc() && after == end) {
    return frequency >= 0 ? last_of_every(frequency, num_layers) : std::vector<bool>();
  }
  auto list = LayerList(text, static_cast<size_t>(num_layers)).read();
  if (!list || list->size() != static_cast<size_t>(num_layers)) return {};
  if (inverted) list->flip();
  return *list;
}

}  // namespace

std::vector<double> TransformerConfig::rope_factors(bool is_long) const {
  const std::string& text = is_long ? rope_scaling_long_factor : rope_scaling_short_factor;
  std::vector<double> factors;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    while (at < end && *at == ' ') ++at;
    double factor = 0;
    const auto [after, error] = std::from_chars(at, end, factor);
    const bool is_last = after == end;
    if (error != std::errc() || !(factor > 0) || std::isinf(factor) || (!is_last && *after != ',')) return {};
    if (!is_last && after + 1 == end) return {};
    factors.push_back(factor);
    at = after + 1;
  }
  return factors;
}

std::string TransformerConfig::rope_factor_text(const std::vector<double>& factors) {
  std::string text;
  for (const double factor : factors) {
    char digits[32];
    const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), factor);
    MS_CHECK(error == std::errc(), "a double has fewer than 32 characters");
    text += cat(text.empty() ? "" : ",", std::string_view(digits, end));
  }
  return text;
}

std::vector<bool> TransformerConfig::layers_with_rope() const {
  if (num_layers < 1 || num_layers > kMaxModelLayers) return {};
  std::vector<bool> layers = read_last_of_every(no_rope_freq, num_layers, false);
  layers.flip();
  return layers;
}

std::vector<int64_t> TransformerConfig::windows_of_layers() const {
  if (num_layers < 1 || num_layers > kMaxModelLayers) return {};
  std::vector<int64_t> windows;
  for (const bool is_full : read_last_of_every(window_attn_skip_freq, num_layers, true)) {
    const bool is_interleaved = interleave_sliding_window > 0 && windows.size() % 2 == 0;
    windows.push_back(is_full ? 0 : is_interleaved ? interleave_sliding_window : sliding_window);
  }
  return windows;
}

std::vector<bool> TransformerConfig::layers_with_experts() const {
  if (num_layers < 1 || num_layers > kMaxModelLayers) return {};
  if (!has_experts()) return std::vector<bool>(static_cast<size_t>(num_layers));
  int64_t frequency = 0;
  const char* end = moe_layer_freq.data() + moe_layer_freq.size();
  const auto [after, error] = std::from_chars(moe_layer_freq.data(), end, frequency);
  if (error == std::errc() && after == end) {
    return frequency > 0 ? every(frequency, num_layers) : std::vector<bool>();
  }
  const auto list = LayerList(moe_layer_freq, static_cast<size_t>(num_layers)).read();
  return list && list->size() == static_cast<size_t>(num_layers) ? *list : std::vector<bool>();
}

void TransformerConfig::resolve(int64_t seq_length) {
  if (hidden_size < 0 || hidden_size > kMaxModelSize) return;  // validate() refuses it
  if (kv_channels == 0 && num_attention_heads > 0 && hidden_size % num_attention_heads == 0) {
    kv_channels = hidden_size / num_attention_heads;  // otherwise validate() refuses, like Megatron
  }
  // Megatron's defaults (megatron/training/arguments.py, validate_args), where --swiglu is the only gate.
  if (ffn_hidden_size == 0) ffn_hidden_size = swiglu ? hidden_size * 8 / 3 / 64 * 64 : 4 * hidden_size;
  if (max_position_embeddings == 0) max_position_embeddings = seq_length;
  if (rope_scaling_original_max_position_embeddings == 0 &&
      (rope_scaling_type == "llama3" || rope_scaling_type == "yarn" || rope_scaling_type == "longrope")) {
    rope_scaling_original_max_position_embeddings = max_position_embeddings;
  }
  if (rope_scaling_type == "longrope") {
    if (rope_scaling_factor == 1 && rope_scaling_original_max_position_embeddings > 0) {  // as in transformers
      rope_scaling_factor = std::max(1.0, static_cast<double>(max_position_embeddings) /
                                              static_cast<double>(rope_scaling_original_max_position_embeddings));
    }
    for (const bool is_long : {false, true}) {
      const std::vector<double> factors = rope_factors(is_long);
      if (!factors.empty()) {
        (is_long ? rope_scaling_long_factor : rope_scaling_short_factor) = rope_factor_text(factors);
      }
    }
  }
  const TransformerConfig plain;
  if (auto layers = layers_with_rope(); !layers.empty()) {
    layers.flip();
    no_rope_freq = has_rotary_embedding() ? last_of_every_text(layers, false) : plain.no_rope_freq;
  }
  if (const auto windows = windows_of_layers(); !windows.empty() && interleave_sliding_window == 0) {
    std::vector<bool> full;
    for (const int64_t window : windows) full.push_back(window == 0);
    const bool any = std::find(full.begin(), full.end(), false) != full.end();
    if (!any) sliding_window = 0;
    window_attn_skip_freq = any ? last_of_every_text(full, true) : plain.window_attn_skip_freq;
  }
  const bool has_windows = sliding_window > 0 || interleave_sliding_window > 0;
  if (!has_rotary_embedding() || !has_windows || (rotary_base_local == rotary_base && rope_scaling_type == "none")) {
    rotary_base_local = plain.rotary_base_local;
  }
  if (!qk_layernorm) qk_layernorm_all_heads = false;
  if (has_experts()) {
    if (moe_ffn_hidden_size == 0) moe_ffn_hidden_size = ffn_hidden_size;
    if (const auto layers = layers_with_experts(); !layers.empty()) {
      moe_layer_freq = layer_freq_text(layers);
      if (moe_layer_freq == "1") ffn_hidden_size = moe_ffn_hidden_size;  // no layer uses the dense width
    }
    if (moe_router_num_groups == 1) moe_router_num_groups = moe_router_group_topk = 0;
    if (moe_shared_expert_intermediate_size == 0) moe_shared_expert_gate = false;
  } else {
    moe_layer_freq = plain.moe_layer_freq;
    moe_ffn_hidden_size = plain.moe_ffn_hidden_size;
    moe_router_topk = plain.moe_router_topk;
    moe_router_score_function = plain.moe_router_score_function;
    moe_router_pre_softmax = plain.moe_router_pre_softmax;
    moe_router_enable_expert_bias = plain.moe_router_enable_expert_bias;
    moe_router_num_groups = plain.moe_router_num_groups;
    moe_router_group_topk = plain.moe_router_group_topk;
    moe_router_topk_scaling_factor = plain.moe_router_topk_scaling_factor;
    moe_shared_expert_intermediate_size = plain.moe_shared_expert_intermediate_size;
    moe_shared_expert_gate = plain.moe_shared_expert_gate;
  }
  if (multi_latent_attention) {
    group_query_attention = false;
    num_query_groups = plain.num_query_groups;
    if (qk_head_dim > 0) kv_channels = qk_head_dim;
  } else {
    q_lora_rank = kv_lora_rank = qk_head_dim = qk_pos_emb_head_dim = v_head_dim = 0;
  }
  if (add_qkv_bias && add_dense_bias && add_mlp_bias) add_bias_linear = true;  // one spelling
  if (add_bias_linear) add_qkv_bias = add_dense_bias = add_mlp_bias = false;
  if (gated() || squared_relu) bias_gelu_fusion = true;  // concerns only GELU without a gate: one value per model
}

int64_t TransformerConfig::padded_vocab_size(int tensor_model_parallel_size) const {
  const int64_t multiple = make_vocab_size_divisible_by * tensor_model_parallel_size;
  return (vocab_size + multiple - 1) / multiple * multiple;
}

int64_t TransformerConfig::num_parameters(int tensor_model_parallel_size) const {
  const int64_t per_norm = has_layer_norm() ? 2 : 1;  // weight, bias
  const int64_t mlp_matrices = gated() ? 3 : 2;
  int64_t attention = hidden_size * proj_columns();
  if (multi_latent_attention) {
    attention += latent_query_rows() * (q_lora_rank > 0 ? q_lora_rank : hidden_size) + hidden_size * q_lora_rank;
    attention += hidden_size * (kv_lora_rank + qk_pos_emb_head_dim) + latent_key_value_rows() * kv_lora_rank;
    if (qk_layernorm) attention += per_norm * (q_lora_rank + kv_lora_rank);
  } else {
    attention += hidden_size * qkv_rows();
    if (has_qkv_bias()) attention += qkv_rows();
    if (qk_layernorm) attention += per_norm * (q_norm_size() + k_norm_size());
  }
  if (softmax_type == "learnable") attention += num_attention_heads;
  int64_t layer = attention + per_norm * hidden_size * 2 * ((pre_norm ? 1 : 0) + (post_norm ? 1 : 0));
  if (has_dense_bias()) layer += hidden_size;
  if (has_mlp_bias()) layer += hidden_size + fc1_rows();
  const int64_t dense = hidden_size * mlp_matrices * ffn_hidden_size;
  int64_t experts =
      hidden_size *
      (mlp_matrices * (num_experts * moe_ffn_hidden_size + moe_shared_expert_intermediate_size) + num_experts);
  if (moe_shared_expert_gate) experts += hidden_size;
  int64_t layers = 0;
  const std::vector<bool> with_experts = layers_with_experts();
  for (const bool has : with_experts) layers += layer + (has ? experts : dense);
  if (mtp_num_layers > 0) {  // same kind as the last layer, with norms and a projection around it
    layers += mtp_num_layers *
              (layer + (with_experts.back() ? experts : dense) + hidden_size * (3 * per_norm + 2 * hidden_size));
  }
  const int64_t embedding = padded_vocab_size(tensor_model_parallel_size) * hidden_size;
  const int64_t positions = has_learned_positions() ? max_position_embeddings * hidden_size : 0;
  return layers + per_norm * hidden_size + positions + embedding * (untie_embeddings_and_output_weights ? 2 : 1);
}

}  // namespace ms::core
