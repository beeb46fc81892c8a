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

namespace ms::core {
namespace {

constexpr int64_t kMaxSize = INT32_MAX;              // of each size: the product of two fits 64 bits
constexpr int64_t kMaxLayers = 1 << 16;              // there are lists with one entry per layer
constexpr double kMaxParameters = int64_t{1} << 53;  // exact in JSON, and counted in 64 bits

// num_parameters in double, which cannot wrap, without parameters that are negligible beside a matrix.
double about_num_parameters(const TransformerConfig& c) {
  const auto hidden = static_cast<double>(c.hidden_size);
  const double heads = static_cast<double>(c.num_attention_heads) + static_cast<double>(c.query_groups());
  const double experts = static_cast<double>(c.num_experts) * static_cast<double>(c.moe_ffn_hidden_size) +
                         static_cast<double>(c.moe_shared_expert_intermediate_size);
  const double latent = static_cast<double>(c.num_attention_heads) *
                        (static_cast<double>(c.qk_head_dim) + static_cast<double>(c.v_head_dim)) *
                        (static_cast<double>(c.q_lora_rank) + static_cast<double>(c.kv_lora_rank));
  const double layer = hidden * (2 * heads * static_cast<double>(c.kv_channels) +
                                 (c.gated() ? 3 : 2) * (static_cast<double>(c.ffn_hidden_size) + experts)) +
                       latent;
  return (static_cast<double>(c.num_layers) + static_cast<double>(c.mtp_num_layers)) * layer +
         hidden * (2 * static_cast<double>(c.vocab_size) + static_cast<double>(c.max_position_embeddings));
}

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
  if (num_layers < 1 || num_layers > kMaxLayers) return {};
  std::vector<bool> layers = read_last_of_every(no_rope_freq, num_layers, false);
  layers.flip();
  return layers;
}

std::vector<int64_t> TransformerConfig::windows_of_layers() const {
  if (num_layers < 1 || num_layers > kMaxLayers) return {};
  std::vector<int64_t> windows;
  for (const bool is_full : read_last_of_every(window_attn_skip_freq, num_layers, true)) {
    const bool is_interleaved = interleave_sliding_window > 0 && windows.size() % 2 == 0;
    windows.push_back(is_full ? 0 : is_interleaved ? interleave_sliding_window : sliding_window);
  }
  return windows;
}

std::vector<bool> TransformerConfig::layers_with_experts() const {
  if (num_layers < 1 || num_layers > kMaxLayers) return {};
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
  if (hidden_size < 0 || hidden_size > kMaxSize) return;  // validate() refuses it
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

void TransformerConfig::validate() const {
  const auto refuse = [](ErrorCode code, const auto&... parts) { throw Error(code, cat(parts...)); };
  const auto positive = [&](int64_t value, const char* flag, int64_t most = kMaxSize) {
    if (value <= 0) refuse(ErrorCode::kInvalidArgument, flag, " is ", value, ": give a positive number");
    if (value > most) refuse(ErrorCode::kInvalidArgument, flag, " is ", value, ": at most ", most);
  };
  positive(num_layers, "--num-layers", kMaxLayers);
  positive(hidden_size, "--hidden-size");
  positive(num_attention_heads, "--num-attention-heads");
  if (kv_channels == 0 && hidden_size % num_attention_heads != 0) {
    refuse(ErrorCode::kInvalidArgument, "--hidden-size ", hidden_size, " is not a multiple of --num-attention-heads ",
           num_attention_heads, ": change one of them, or give the head size with --kv-channels");
  }
  positive(kv_channels, "--kv-channels");
  positive(ffn_hidden_size, "--ffn-hidden-size");
  positive(query_groups(), "--num-query-groups");
  positive(make_vocab_size_divisible_by, "--make-vocab-size-divisible-by");
  positive(vocab_size, "--vocab-size");
  if (max_position_embeddings < 0 || max_position_embeddings > kMaxSize) {
    refuse(ErrorCode::kInvalidArgument, "--max-position-embeddings is ", max_position_embeddings, ": expected 0 to ",
           kMaxSize);
  }
  if (const double parameters = about_num_parameters(*this); parameters > kMaxParameters) {
    refuse(ErrorCode::kInvalidArgument, "the sizes given make a model of about ", parameters, " parameters: at most ",
           kMaxParameters, ". See --hidden-size, --ffn-hidden-size, --kv-channels and --vocab-size");
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
  if (swiglu + geglu + gelu_tanh + squared_relu > 1) {
    refuse(ErrorCode::kInvalidArgument, "--swiglu, --geglu, --gelu-tanh and --squared-relu exclude each other");
  }
  if (sliding_window < 0 || interleave_sliding_window < 0 || (sliding_window > 0 && interleave_sliding_window > 0)) {
    refuse(ErrorCode::kInvalidArgument, "--sliding-window ", sliding_window, " and --interleave-sliding-window ",
           interleave_sliding_window, ": give one of them, a positive number of tokens");
  }
  for (const auto& [value, flag] :
       {std::pair{hidden_dropout, "--hidden-dropout"}, std::pair{attention_dropout, "--attention-dropout"}}) {
    if (!(value >= 0 && value < 1)) refuse(ErrorCode::kInvalidArgument, flag, " ", value, ": expected [0, 1)");
  }
  for (const auto& [value, flag] :
       {std::pair{query_pre_attn_scalar, "--query-pre-attn-scalar"},
        std::pair{attn_logit_softcapping, "--attn-logit-softcapping"},
        std::pair{output_logit_softcapping, "--output-logit-softcapping"}, std::pair{norm_epsilon, "--norm-epsilon"}}) {
    if (!(value >= 0) || std::isinf(value)) refuse(ErrorCode::kInvalidArgument, flag, " ", value, ": at least 0");
  }
  for (const auto& [value, flag] :
       {std::pair{softmax_scale, "--softmax-scale"}, std::pair{rotary_base_local, "--rotary-base-local"}}) {
    if (!(value >= 0) || std::isinf(value)) refuse(ErrorCode::kInvalidArgument, flag, " ", value, ": at least 0");
  }
  for (const auto& [value, flag] :
       {std::pair{embedding_multiplier, "--embedding-multiplier"},
        std::pair{residual_multiplier, "--residual-multiplier"}, std::pair{logits_scaling, "--logits-scaling"}}) {
    if (!(value > 0) || std::isinf(value)) {
      refuse(ErrorCode::kInvalidArgument, flag, " ", value, ": give a positive number");
    }
  }
  validate_layers();
  validate_rotary_embedding();
  validate_experts();
  validate_latent_attention();
}

void TransformerConfig::validate_layers() const {
  const auto refuse = [](ErrorCode code, const auto&... parts) { throw Error(code, cat(parts...)); };
  constexpr size_t kShown = 60;
  const auto refuse_list = [&](const char* flag, const std::string& text) {
    refuse(ErrorCode::kInvalidArgument, flag, " ", text.substr(0, kShown), text.size() > kShown ? ".." : "",
           ": expected a number, or a list of ", num_layers, " zeros and ones such as ([0]*", num_layers - 1, "+[1])");
  };
  if (layers_with_rope().empty()) refuse_list("--no-rope-freq", no_rope_freq);
  if (windows_of_layers().empty()) refuse_list("--window-attn-skip-freq", window_attn_skip_freq);
  if (window_attn_skip_freq != "0" && interleave_sliding_window > 0) {
    refuse(ErrorCode::kInvalidArgument, "--window-attn-skip-freq ", window_attn_skip_freq,
           " applies to --sliding-window; --interleave-sliding-window selects its own layers");
  }
  if (!pre_norm && !post_norm) {
    refuse(ErrorCode::kInvalidArgument, "--no-pre-norm without --post-norm leaves the layers without norms");
  }
  if (multi_latent_attention && (!pre_norm || qk_layernorm_all_heads)) {
    refuse(ErrorCode::kUnsupported, "--multi-latent-attention excludes --no-pre-norm and --qk-layernorm-all-heads");
  }
  if (has_experts() && !pre_norm) {
    refuse(ErrorCode::kUnsupported, "--num-experts is not supported with --no-pre-norm");
  }
  if (parallel_residual && post_norm) {
    refuse(ErrorCode::kUnsupported, "--parallel-residual is not supported with --post-norm");
  }
}

void TransformerConfig::validate_experts() const {
  const auto refuse = [](ErrorCode code, const auto&... parts) { throw Error(code, cat(parts...)); };
  constexpr int64_t kMaxExperts = 1 << 16, kMaxInAll = 1 << 18;  // ten times what any model has
  if (num_experts < 0 || num_experts > kMaxExperts) {
    refuse(ErrorCode::kInvalidArgument, "--num-experts ", num_experts, ": expected 0 to ", kMaxExperts);
  }
  if (num_experts > kMaxInAll / num_layers) {
    refuse(ErrorCode::kInvalidArgument, "--num-experts ", num_experts, " in --num-layers ", num_layers,
           ": expected at most ", kMaxInAll, " in total");
  }
  if (mtp_num_layers < 0 || mtp_num_layers > num_layers) {
    refuse(ErrorCode::kInvalidArgument, "--mtp-num-layers ", mtp_num_layers, ": expected 0 to --num-layers ",
           num_layers);
  }
  if ((has_dense_bias() || has_mlp_bias()) && (has_experts() || multi_latent_attention || mtp_num_layers > 0)) {
    refuse(ErrorCode::kUnsupported,
           "--num-experts, --multi-latent-attention and --mtp-num-layers are not supported with biases in all linear "
           "layers; give --disable-bias-linear, without --add-dense-bias and --add-mlp-bias");
  }
  if (!has_experts()) return;
  if (layers_with_experts().empty()) {
    constexpr size_t kShown = 60;
    refuse(ErrorCode::kInvalidArgument, "--moe-layer-freq ", moe_layer_freq.substr(0, kShown),
           moe_layer_freq.size() > kShown ? ".." : "", ": expected a positive number, or a list of ", num_layers,
           " zeros and ones such as ([0]*1+[1]*", num_layers - 1, ")");
  }
  if (moe_ffn_hidden_size < 1 || moe_ffn_hidden_size > kMaxSize) {
    refuse(ErrorCode::kInvalidArgument, "--moe-ffn-hidden-size is ", moe_ffn_hidden_size,
           ": give a positive number up to ", kMaxSize);
  }
  if (moe_router_topk < 1 || moe_router_topk > num_experts) {
    refuse(ErrorCode::kInvalidArgument, "--moe-router-topk ", moe_router_topk, ": expected 1 to --num-experts ",
           num_experts);
  }
  if (moe_router_score_function != "softmax" && moe_router_score_function != "sigmoid") {
    refuse(ErrorCode::kInvalidArgument, "--moe-router-score-function ", moe_router_score_function,
           ": expected softmax or sigmoid");
  }
  const bool grouped = moe_router_num_groups != 0 || moe_router_group_topk != 0;
  if (grouped && (moe_router_num_groups < 1 || num_experts % moe_router_num_groups != 0 || moe_router_group_topk < 1 ||
                  moe_router_group_topk > moe_router_num_groups)) {
    refuse(ErrorCode::kInvalidArgument, "--moe-router-num-groups ", moe_router_num_groups,
           " must divide --num-experts ", num_experts, ", and --moe-router-group-topk ", moe_router_group_topk,
           " must be from 1 to that number");
  }
  if (!(moe_router_topk_scaling_factor > 0)) {
    refuse(ErrorCode::kInvalidArgument, "--moe-router-topk-scaling-factor ", moe_router_topk_scaling_factor,
           ": give a positive number");
  }
  if (moe_shared_expert_intermediate_size < 0 || moe_shared_expert_intermediate_size > kMaxSize) {
    refuse(ErrorCode::kInvalidArgument, "--moe-shared-expert-intermediate-size is ",
           moe_shared_expert_intermediate_size, ": expected 0 to ", kMaxSize);
  }
}

void TransformerConfig::validate_latent_attention() const {
  if (!multi_latent_attention) return;
  for (const auto& [value, least, flag] :
       {std::tuple{q_lora_rank, int64_t{0}, "--q-lora-rank"}, std::tuple{kv_lora_rank, int64_t{1}, "--kv-lora-rank"},
        std::tuple{qk_head_dim, int64_t{1}, "--qk-head-dim"},
        std::tuple{qk_pos_emb_head_dim, int64_t{1}, "--qk-pos-emb-head-dim"},
        std::tuple{v_head_dim, int64_t{1}, "--v-head-dim"}}) {
    if (value >= least && value <= kMaxSize) continue;
    throw Error(ErrorCode::kInvalidArgument,
                cat("--multi-latent-attention: ", flag, " is ", value, ": expected ", least, " to ", kMaxSize));
  }
  if (add_qkv_bias || group_query_attention) {
    throw Error(ErrorCode::kInvalidArgument,
                "--multi-latent-attention excludes --add-qkv-bias and "
                "--group-query-attention");
  }
}

void TransformerConfig::validate_rotary_embedding() const {
  const auto refuse = [](const auto&... parts) { throw Error(ErrorCode::kInvalidArgument, cat(parts...)); };
  const std::string& type = rope_scaling_type;
  if (type != "none" && type != "linear" && type != "dynamic" && type != "llama3" && type != "yarn" &&
      type != "longrope") {
    refuse("--rope-scaling-type ", type, ": expected none, linear, dynamic, llama3, yarn or longrope");
  }
  if (type != "longrope" && !(rope_scaling_short_factor.empty() && rope_scaling_long_factor.empty())) {
    refuse("--rope-scaling-short-factor and --rope-scaling-long-factor need --rope-scaling-type longrope");
  }
  if (!has_rotary_embedding()) {
    if (type != "none") refuse("--rope-scaling-type ", type, " needs --position-embedding-type rope");
    return;
  }
  if (!(rotary_percent > 0 && rotary_percent <= 1) || rotary_dim() < 2) {
    refuse("--rotary-percent ", rotary_percent, " of --kv-channels ", kv_channels,
           ": expected a share in (0, 1] that leaves at least one pair to rotate");
  }
  if (kv_channels % 2 != 0 && rotary_percent == 1.0) {
    refuse("--kv-channels ", kv_channels, " is odd; rotary embedding rotates pairs");
  }
  if (!(rotary_base > 1)) refuse("--rotary-base ", rotary_base, ": expected a number above 1");
  if (type == "none") {
    if (rope_scaling_factor != 1) {
      refuse("--rope-scaling-factor ", rope_scaling_factor,
             " needs --rope-scaling-type linear, dynamic, llama3, yarn or longrope");
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
  if (type == "longrope") {
    if (multi_latent_attention) refuse("--rope-scaling-type longrope excludes --multi-latent-attention");
    if (rope_scaling_original_max_position_embeddings < 2) {
      refuse("--rope-scaling-type longrope: --rope-scaling-original-max-position-embeddings is ",
             rope_scaling_original_max_position_embeddings, ": expected the original length, at least 2");
    }
    if (!(rope_scaling_attention_factor >= 0) || std::isinf(rope_scaling_attention_factor)) {
      refuse("--rope-scaling-attention-factor ", rope_scaling_attention_factor, ": at least 0");
    }
    for (const bool is_long : {false, true}) {
      const auto given = static_cast<int64_t>(rope_factors(is_long).size());
      if (given == rotary_dim() / 2) continue;
      const std::string seen = given > 0 ? cat(given, " numbers") : "no list of positive numbers, separated by commas";
      refuse(is_long ? "--rope-scaling-long-factor" : "--rope-scaling-short-factor", " is ", seen, ": expected ",
             rotary_dim() / 2, ", one for each pair of a head");
    }
  }
  if (type == "yarn" && !(rope_scaling_beta_slow > 0 && rope_scaling_beta_fast >= rope_scaling_beta_slow)) {
    refuse("--rope-scaling-beta-fast ", rope_scaling_beta_fast, " must not be below --rope-scaling-beta-slow ",
           rope_scaling_beta_slow, ", and that be above 0");
  }
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
