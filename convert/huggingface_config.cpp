#include "convert/huggingface_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <type_traits>

#include "convert/config_keys.h"
#include "convert/detail/printable.h"
#include "convert/user_family.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/log.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

constexpr int64_t kMaxConfigBytes = 16 << 20;
constexpr int64_t kMaxSize = kMaxConfigSize, kMaxCount = kMaxConfigCount;
constexpr int kMaxDepth = 64;  // of JSON, which is printed recursively

// A RoPE scaling parameter: its key in rope_scaling or rope_parameters, and its field.
struct RopeKey {
  const char* hf;
  double core::TransformerConfig::*field;
  const char* type;  // of scaling
};
constexpr std::array<RopeKey, 9> kRopeKeys = {{
    {"low_freq_factor", &core::TransformerConfig::rope_scaling_low_freq_factor, "llama3"},
    {"high_freq_factor", &core::TransformerConfig::rope_scaling_high_freq_factor, "llama3"},
    {"beta_fast", &core::TransformerConfig::rope_scaling_beta_fast, "yarn"},
    {"beta_slow", &core::TransformerConfig::rope_scaling_beta_slow, "yarn"},
    {"mscale", &core::TransformerConfig::rope_scaling_mscale, "yarn"},
    {"mscale_all_dim", &core::TransformerConfig::rope_scaling_mscale_all_dim, "yarn"},
    {"attention_factor", &core::TransformerConfig::rope_scaling_attention_factor, "yarn"},
    {"attention_factor", &core::TransformerConfig::rope_scaling_attention_factor, "longrope"},
    {"factor", &core::TransformerConfig::rope_scaling_factor, ""},
}};

// mrope_section applies to image and video tokens; a text token has one position, so it has no effect on text.
bool is_plain_rope_key(const std::string& name) {
  return name == "rope_type" || name == "type" || name == "rope_theta" || name == "partial_rotary_factor" ||
         name == "mrope_section" || name == "mrope_interleaved";
}

// longrope's lists of divisors.
constexpr std::array<std::pair<const char*, std::string core::TransformerConfig::*>, 2> kRopeFactorKeys = {
    {{"short_factor", &core::TransformerConfig::rope_scaling_short_factor},
     {"long_factor", &core::TransformerConfig::rope_scaling_long_factor}}};

std::string rope_factors(const ConfigKeys& rope, const char* key, int64_t rotary_dim) {
  const json* list = rope.find(key);
  std::vector<double> factors;
  if (list != nullptr && list->is_array() && static_cast<int64_t>(list->size()) == rotary_dim / 2) {
    for (const json& item : *list) {
      const double factor = item.is_number() ? item.get<double>() : 0;
      if (factor > 0 && std::isfinite(factor)) factors.push_back(factor);
    }
  }
  if (factors.empty() || factors.size() != list->size()) {
    rope.fail(ErrorCode::kCorruptData, key,
              cat("of longrope is not a list of ", rotary_dim / 2, " positive numbers, one for each pair of a head"));
  }
  return core::TransformerConfig::rope_factor_text(factors);
}

// Scaling types that depend on the length before the stretch.
bool has_original_length(std::string_view type) { return type == "llama3" || type == "yarn" || type == "longrope"; }

// longrope needs no factor: the default is that of the lengths. A factor up to 1 means that attention is not scaled.
void read_longrope(const ConfigKeys& rope, core::TransformerConfig& model) {
  for (const auto& [name, field] : kRopeFactorKeys) model.*field = rope_factors(rope, name, model.rotary_dim());
  const int64_t original = model.rope_scaling_original_max_position_embeddings;
  if (rope.find("factor") == nullptr) {
    model.rope_scaling_factor = 1;
    if (original > 0) {
      model.rope_scaling_factor =
          std::max(1.0, static_cast<double>(model.max_position_embeddings) / static_cast<double>(original));
    }
  } else if (model.rope_scaling_factor <= 1) {
    model.rope_scaling_factor = 1;
    if (model.rope_scaling_attention_factor == 0) model.rope_scaling_attention_factor = 1;
  }
}

// Reads rope_scaling (older files) or rope_parameters (newer files; includes rope_theta and partial_rotary_factor).
void read_rope_object(const ConfigKeys& keys, const char* key, const json& rope, std::string_view where,
                      const Family& family, core::TransformerConfig& model) {
  if (!rope.is_object()) keys.unsupported(key);
  const ConfigKeys inner(rope, where);
  model.rotary_base = inner.number("rope_theta", model.rotary_base);
  if (family.default_partial_rotary) {
    model.rotary_percent = inner.number("partial_rotary_factor", model.rotary_percent);
  } else if (inner.number("partial_rotary_factor", 1.0) != 1.0) {
    keys.unsupported(key);
  }
  std::string type = inner.text("rope_type", inner.text("type", "default"));
  if (type == "mrope") type = "default";
  if (type == "su") type = "longrope";  // Phi-3's first files
  const bool is_known = type == "linear" || type == "dynamic" || has_original_length(type);
  if (type != "default" && !is_known) keys.unsupported(key);
  if (is_known) model.rope_scaling_type = type;
  for (const auto& item : rope.items()) {
    const std::string& name = item.key();  // Clang 14: lambdas cannot capture structured bindings
    const json& value = item.value();
    if (is_plain_rope_key(name) || value.is_null()) continue;
    if (is_known && name == "original_max_position_embeddings") {
      model.rope_scaling_original_max_position_embeddings = inner.size(name.c_str());
      continue;
    }
    if (is_known && name == "truncate" && value == true) continue;
    if (type == "longrope" && (name == "short_factor" || name == "long_factor")) continue;  // read_longrope
    const auto found = std::find_if(kRopeKeys.begin(), kRopeKeys.end(), [&](const RopeKey& k) {
      return name == k.hf && is_known && (*k.type == '\0' || type == k.type);
    });
    if (found == kRopeKeys.end()) keys.unsupported(key);  // a scaling under another name, or per-layer tables
    model.*(found->field) = inner.number(found->hf, 0);
  }
  // Beside the object it comes first, as in transformers.
  const std::string_view original = "original_max_position_embeddings";
  if (has_original_length(type) && (keys.find(original) != nullptr || family.default_original_positions > 0)) {
    model.rope_scaling_original_max_position_embeddings = keys.size(original, family.default_original_positions);
  }
  if (type == "longrope") return read_longrope(inner, model);
  if (is_known && !rope.contains("factor")) {
    keys.fail(ErrorCode::kCorruptData, key, cat("says ", type, " but has no factor"));
  }
}

// Gemma 3 has separate RoPE settings for each type of layer.
void read_rope(const ConfigKeys& keys, const char* key, std::string_view where, const Family& family,
               core::TransformerConfig& model) {
  constexpr const char *kFull = "full_attention", *kLocal = "sliding_attention";
  const json* rope = keys.find(key);
  if (rope == nullptr) return;
  const bool by_type = family.default_rotary_base_local > 0 && rope->is_object() && rope->contains(kFull);
  if (!by_type) return read_rope_object(keys, key, *rope, where, family, model);
  read_rope_object(keys, key, rope->at(kFull), where, family, model);
  if (!rope->contains(kLocal)) return;
  core::TransformerConfig local;
  local.rotary_base = model.rotary_base_local;
  read_rope_object(keys, key, rope->at(kLocal), where, family, local);
  if (local.rope_scaling_type != "none") keys.unsupported(key);
  model.rotary_base_local = local.rotary_base;
}

void read_rotary(const ConfigKeys& keys, std::string_view where, const Family& family, core::TransformerConfig& model) {
  model.rotary_base = keys.number(family.rotary_base_key, family.default_rotary_base);
  model.rotary_percent = keys.number(family.partial_rotary_key, family.default_partial_rotary.value_or(1.0));
  if (!family.default_partial_rotary && model.rotary_percent != 1.0) keys.unsupported(family.partial_rotary_key);
  if (family.default_rotary_base_local > 0) {
    model.rotary_base_local = keys.number("rope_local_base_freq", family.default_rotary_base_local);
  }
  keys.find("original_max_position_embeddings");  // without scaling it has no effect
  read_rope(keys, "rope_scaling", where, family, model);
  read_rope(keys, "rope_parameters", where, family, model);
  if (family.rope_layers_key.empty()) return;
  const int64_t interval = keys.size("no_rope_layer_interval", 4, kMaxCount);
  const json* layers = keys.find(family.rope_layers_key);
  model.no_rope_freq = std::to_string(interval);
  if (layers == nullptr) return;
  if (!layers->is_array() || static_cast<int64_t>(layers->size()) < model.num_layers) {
    keys.unsupported(family.rope_layers_key);
  }
  model.no_rope_freq = "[";
  for (int64_t i = 0; i < model.num_layers; ++i) {
    const json& has = (*layers)[static_cast<size_t>(i)];
    if (has != 0 && has != 1 && !has.is_boolean()) keys.unsupported(family.rope_layers_key);
    model.no_rope_freq += has == 0 || has == false ? "1," : "0,";
  }
  model.no_rope_freq.back() = ']';
}

void write_rope(json& out, const core::TransformerConfig& model, const Family& family) {
  out[std::string(family.rotary_base_key)] = model.rotary_base;
  if (family.default_partial_rotary) out[std::string(family.partial_rotary_key)] = model.rotary_percent;
  if (family.default_rotary_base_local > 0) {
    out["rope_local_base_freq"] = model.rotary_base_local > 0 ? model.rotary_base_local : model.rotary_base;
  }
  if (!family.rope_layers_key.empty()) {
    json& layers = out[std::string(family.rope_layers_key)] = json::array();
    for (const bool has : model.layers_with_rope()) layers.push_back(has ? 1 : 0);
  }
  out.erase("rope_parameters");
  out.erase("rope_scaling");
  if (model.rope_scaling_type == "none") return;
  json rope = {{"rope_type", model.rope_scaling_type}};
  for (const RopeKey& key : kRopeKeys) {
    const bool belongs = *key.type == '\0' || model.rope_scaling_type == key.type;
    if (belongs && model.*(key.field) != 0) rope[key.hf] = model.*(key.field);
  }
  if (has_original_length(model.rope_scaling_type)) {
    int64_t original = model.rope_scaling_original_max_position_embeddings;
    if (original == 0) original = model.max_position_embeddings;
    rope["original_max_position_embeddings"] = original;
    out.erase("original_max_position_embeddings");
    if (family.default_original_positions > 0) out["original_max_position_embeddings"] = original;
  }
  if (model.rope_scaling_type == "longrope") {
    rope["short_factor"] = model.rope_factors(false);
    rope["long_factor"] = model.rope_factors(true);
  }
  out["rope_scaling"] = std::move(rope);
}

// Reads layer_types, or the keys that older files use instead.
void read_layer_types(const ConfigKeys& keys, const Family& family, core::TransformerConfig& model) {
  constexpr const char *kWindow = "sliding_attention", *kFull = "full_attention";
  if (!family.window_pattern_key.empty()) {
    const std::string private_key = cat("_", family.window_pattern_key);
    const int64_t pattern = keys.size(family.window_pattern_key, family.default_window_pattern);
    model.window_attn_skip_freq = std::to_string(keys.size(private_key, pattern));
  }
  const json* types = keys.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || static_cast<int64_t>(types->size()) != model.num_layers) keys.unsupported("layer_types");
  if (!family.window_pattern_key.empty()) {
    model.window_attn_skip_freq = "[";
    for (const json& type : *types) {
      if (type != kWindow && type != kFull) keys.unsupported("layer_types");
      model.window_attn_skip_freq += type == kWindow ? "1," : "0,";
    }
    model.window_attn_skip_freq.back() = ']';
    return;
  }
  const std::vector<int64_t> windows = model.windows_of_layers();
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    if ((*types)[layer] != (windows[layer] > 0 ? kWindow : kFull)) keys.unsupported("layer_types");
  }
}

void read_activation(const ConfigKeys& keys, const Family& family, core::TransformerConfig& model) {
  std::string_view fixed = "";
  if (model.swiglu) fixed = "silu";
  if (model.gelu_tanh) fixed = "gelu_tanh";
  if (model.squared_relu) fixed = "relu2";
  for (const std::string_view key : family.activation_keys) {
    const std::string name = keys.text(key, std::string(family.activation));
    const std::string_view activation = activation_of(name);
    const bool is_gelu = activation == "gelu_tanh" || activation == "gelu";
    if (fixed.empty() ? !is_gelu : activation != fixed) keys.unsupported(key);
    if (fixed.empty()) model.bias_gelu_fusion = activation == "gelu_tanh";
  }
}

void read_keys(const ConfigKeys& keys, const Family& family, core::TransformerConfig& model) {
  for (const ConfigKey& key : family.keys) {
    const std::string_view name = keys.find(key.hf) == nullptr && !key.also.empty() ? key.also : key.hf;
    if (!key.absent && keys.find(name) == nullptr && !(key.null_is_none && keys.has_null(name))) {
      keys.fail(ErrorCode::kCorruptData, name, "is missing");
    }
    if (key.null_is_none && keys.has_null(name)) {
      std::visit([&](auto member) { model.*member = 0; }, key.field);
      continue;
    }
    std::visit(
        [&]<class T>(T core::TransformerConfig::*member) {
          if constexpr (std::is_same_v<T, int64_t>) {
            const bool is_count =
                member == &core::TransformerConfig::num_layers || member == &core::TransformerConfig::num_experts;
            model.*member = keys.size(name, key.absent ? std::optional<int64_t>(*key.absent) : std::nullopt,
                                      is_count ? kMaxCount : kMaxSize, key.may_be_zero ? 0 : 1);
          } else if constexpr (std::is_same_v<T, bool>) {
            model.*member = keys.flag(name, key.absent.value_or(0) != 0) != key.negated;
          } else {
            const bool is_share = member == &core::TransformerConfig::attention_dropout ||
                                  member == &core::TransformerConfig::hidden_dropout;
            model.*member = keys.number(name, key.absent.value_or(0), is_share);
          }
        },
        key.field);
  }
  const json* embeddings = keys.find("embd_pdrop");
  const json* blocks = keys.find("resid_pdrop");
  if (embeddings != nullptr && blocks != nullptr && *embeddings != *blocks) {
    core::log_warning("convert.hf", cat("embd_pdrop is ", embeddings->dump(), " and resid_pdrop ", blocks->dump(),
                                        "; only one hidden dropout is supported, and the latter is used"));
  }
}

void read_heads(const ConfigKeys& keys, const Family& family, core::TransformerConfig& model) {
  const std::string_view heads_key = family.heads_key;
  model.num_attention_heads = keys.size(heads_key, std::nullopt, kMaxCount);
  model.num_query_groups =
      family.groups_key.empty() ? model.num_attention_heads : keys.size(family.groups_key, model.num_attention_heads);
  model.group_query_attention = model.num_query_groups != model.num_attention_heads;
  if (!model.group_query_attention) model.num_query_groups = 1;  // as from the flags: unused
  if (model.num_attention_heads % model.query_groups() != 0) {
    keys.fail(ErrorCode::kCorruptData, family.groups_key,
              cat("is ", model.query_groups(), ", which does not divide ", heads_key, " ", model.num_attention_heads));
  }
  if (model.multi_latent_attention) {
    if (model.group_query_attention) keys.unsupported(family.groups_key);
    return;  // the family has a key for the head size
  }
  if (model.kv_channels == 0) model.kv_channels = family.default_head_dim;
  if (model.kv_channels != 0) return;
  if (model.hidden_size % model.num_attention_heads != 0) {
    keys.fail(ErrorCode::kCorruptData, "head_dim",
              cat("is missing, and the hidden size ", model.hidden_size, " is not a multiple of ", heads_key, " ",
                  model.num_attention_heads));
  }
  model.kv_channels = model.hidden_size / model.num_attention_heads;
}

// Reads which layers have experts, how many are shared, and how experts are chosen.
void read_experts(const ConfigKeys& keys, const Family& family, core::TransformerConfig& model) {
  if (!family.mtp_key.empty()) model.mtp_num_layers = keys.size(family.mtp_key, 0, model.num_layers, 0);
  if (family.expert_layers == ExpertLayers::kNone) return;
  std::vector<bool> layers(static_cast<size_t>(model.num_layers), true);
  if (family.expert_layers == ExpertLayers::kAfterFirst) {
    const int64_t first = keys.size("first_k_dense_replace", 0, kMaxCount, 0);
    const int64_t step = keys.size("moe_layer_freq", 1, kMaxCount);
    for (int64_t i = 0; i < model.num_layers; ++i) layers[static_cast<size_t>(i)] = i >= first && i % step == 0;
  } else if (family.expert_layers == ExpertLayers::kSparseStep) {
    const int64_t step = keys.size("decoder_sparse_step", 1, kMaxCount);
    for (int64_t i = 0; i < model.num_layers; ++i) layers[static_cast<size_t>(i)] = (i + 1) % step == 0;
    const json* dense = keys.find("mlp_only_layers");
    for (const json& layer : dense == nullptr ? json::array() : *dense) {
      if (!layer.is_number_integer() || layer < 0 || layer >= model.num_layers) keys.unsupported("mlp_only_layers");
      layers[layer.get<size_t>()] = false;
    }
  }
  model.moe_layer_freq = "[";
  for (const bool has : layers) model.moe_layer_freq += has ? "1," : "0,";
  model.moe_layer_freq.back() = ']';
  if (!family.shared_experts_key.empty()) {
    model.moe_shared_expert_intermediate_size =
        keys.size(family.shared_experts_key, 0, kMaxCount, 0) * model.moe_ffn_hidden_size;
  }
  if (keys.text("scoring_func", model.moe_router_score_function) != model.moe_router_score_function) {
    keys.unsupported("scoring_func");
  }
  const std::string without_bias = model.moe_router_num_groups > 1 ? "group_limited_greedy" : "greedy";
  const std::string method = keys.text("topk_method", model.moe_router_enable_expert_bias ? "noaux_tc" : without_bias);
  if (method == "greedy") model.moe_router_num_groups = model.moe_router_group_topk = 0;
  if ((method == "noaux_tc") != model.moe_router_enable_expert_bias ||
      (method != "noaux_tc" && method != "greedy" && method != "group_limited_greedy")) {
    keys.unsupported("topk_method");
  }
}

// Parses a list of zeros and ones: layers without and with experts.
std::optional<int64_t> first_layer_with_experts(const core::TransformerConfig& model) {
  const std::vector<bool> layers = model.layers_with_experts();
  const auto first = std::find(layers.begin(), layers.end(), true);
  if (std::find(first, layers.end(), false) != layers.end()) return std::nullopt;
  return first - layers.begin();
}

void write_experts(json& out, const core::TransformerConfig& model, const Family& family) {
  if (!family.mtp_key.empty()) out[std::string(family.mtp_key)] = model.mtp_num_layers;
  if (!family.shared_experts_key.empty()) {
    out[std::string(family.shared_experts_key)] = model.moe_shared_expert_intermediate_size / model.moe_ffn_hidden_size;
  }
  if (family.expert_layers == ExpertLayers::kAfterFirst) {
    out["first_k_dense_replace"] = *first_layer_with_experts(model);
    out["scoring_func"] = model.moe_router_score_function;
    const char* without_bias = model.moe_router_num_groups > 0 ? "group_limited_greedy" : "greedy";
    out["topk_method"] = model.moe_router_enable_expert_bias ? "noaux_tc" : without_bias;
    if (model.moe_router_num_groups == 0) out["n_group"] = out["topk_group"] = 1;
  }
  if (family.expert_layers == ExpertLayers::kSparseStep) {
    json dense = json::array();
    const std::vector<bool> layers = model.layers_with_experts();
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!layers[i]) dense.push_back(i);
    }
    out["decoder_sparse_step"] = 1;
    out["mlp_only_layers"] = dense;
  }
}

// Reads FP8 settings as in DeepSeek-V3: E4M3 with a scale per block; refuses any other quantization.
void read_quantization(const ConfigKeys& keys, std::string_view where, HfConfig& config) {
  const json* value = keys.find("quantization_config");
  if (value == nullptr) return;
  if (!value->is_object()) keys.unsupported("quantization_config");
  const ConfigKeys inner(*value, where);
  const json* block = inner.find("weight_block_size");
  const bool is_block = block != nullptr && block->is_array() && block->size() == 2 &&
                        (*block)[0].is_number_integer() && (*block)[1].is_number_integer() && (*block)[0] > 0 &&
                        (*block)[1] > 0 && (*block)[0] <= kMaxSize && (*block)[1] <= kMaxSize;
  if (inner.text("quant_method", "") != "fp8" || inner.text("fmt", "e4m3") != "e4m3" || !is_block) {
    keys.unsupported("quantization_config");
  }
  config.fp8_block_rows = (*block)[0].get<int64_t>();
  config.fp8_block_columns = (*block)[1].get<int64_t>();
  config.original.erase("quantization_config");
}

std::optional<core::DType> config_dtype(const ConfigKeys& keys) {
  const char* key = keys.find("dtype") != nullptr ? "dtype" : "torch_dtype";
  const std::string text = keys.text(key, "");
  if (text == "float32") return core::DType::kFp32;
  if (text == "bfloat16") return core::DType::kBf16;
  if (text == "float16") return core::DType::kFp16;
  if (text.empty() || text == "auto") return std::nullopt;
  keys.unsupported(key);
}

std::string_view torch_name(core::DType dtype) {
  switch (dtype) {
    case core::DType::kFp32:
      return "float32";
    case core::DType::kBf16:
      return "bfloat16";
    case core::DType::kFp16:
      return "float16";
    default:
      throw Error(ErrorCode::kUnsupported, cat("a Hugging Face model of ", core::dtype_name(dtype),
                                               " is not supported; use --dtype fp32, bf16 or fp16"));
  }
}

void set_model_keys(json& out, const core::TransformerConfig& model, const Family& family) {
  out["architectures"] = {family.architecture};
  out["model_type"] = family.model_type;
  const bool by_erf = !model.gated() && !model.bias_gelu_fusion;
  const std::string_view by_tanh = activation_of(family.activation) == "gelu" ? "gelu_new" : family.activation;
  out[std::string(family.activation_keys[0])] = by_erf ? "gelu" : by_tanh;
  out[std::string(family.heads_key)] = model.num_attention_heads;
  if (!family.groups_key.empty()) out[std::string(family.groups_key)] = model.query_groups();
  for (const ConfigKey& key : family.keys) {
    json& value = out[std::string(key.hf)];
    std::visit([&](auto member) { value = model.*member; }, key.field);
    if (const auto* flag = std::get_if<bool core::TransformerConfig::*>(&key.field)) value = flag_of(model, *flag);
    if (key.negated) value = !value.get<bool>();
    const auto* number = std::get_if<double core::TransformerConfig::*>(&key.field);
    if (number != nullptr && *number == &core::TransformerConfig::softmax_scale && value == 0) {
      const double scalar = model.query_pre_attn_scalar;
      value = 1 / std::sqrt(scalar > 0 ? scalar : static_cast<double>(model.kv_channels));
    }
    if (key.null_is_none && value == 0) value = nullptr;
    if (key.whole_number) value = static_cast<int64_t>(value.get<double>());
  }
  for (const RequiredFlag& flag : family.required) out[std::string(flag.hf)] = flag.value;
  out["tie_word_embeddings"] = !model.untie_embeddings_and_output_weights;
  out.erase("layer_types");  // follows from the windows
  if (!family.window_pattern_key.empty()) {
    json& types = out["layer_types"] = json::array();
    for (const int64_t window : model.windows_of_layers()) {
      types.push_back(window > 0 ? "sliding_attention" : "full_attention");
    }
    out.erase(std::string(family.window_pattern_key));
    out.erase(cat("_", family.window_pattern_key));
  }
  write_experts(out, model, family);
  if (model.has_rotary_embedding()) write_rope(out, model, family);
  for (const char* id : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    // Without the key transformers would use the family's default, which belongs to another model.
    if (!out.contains(id)) out[id] = nullptr;
  }
}

}  // namespace

json read_json(const std::string& path, int64_t max_bytes) {
  const std::string text = core::read_text(path, max_bytes);
  const auto check_depth = [&](int depth, json::parse_event_t, json&) {
    if (depth > kMaxDepth) throw Error(ErrorCode::kCorruptData, cat(path, ": nested deeper than ", kMaxDepth));
    return true;
  };
  try {
    return json::parse(text, check_depth);
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kCorruptData, cat(path, ": not valid JSON: ", core::json_error_text(error)));
  }
}

void HfConfig::rename(const std::function<bool(std::string_view name)>& has) {
  if (!is_wrapper) return;
  const std::string_view embedding = embedding_name(*family);
  const bool needs_output = model.untie_embeddings_and_output_weights;
  for (const WrappedNames& names : wrapped_names()) {
    if (!has(cat(names.prefix, embedding)) || (needs_output && !has(names.output))) continue;
    wrapped = names;
    owned = wrapped_family(*family, names);
    family = owned.get();
    return;
  }
}

namespace {

HfConfig parse_wrapper(const json& object, std::string_view where) {
  json text = text_config(object, where);
  if (object.contains("quantization_config")) text["quantization_config"] = object["quantization_config"];
  HfConfig config = parse_hf_config(text, cat(where, ": text_config"));
  config.original = object;
  if (config.fp8_block_rows > 0) config.original.erase("quantization_config");
  config.is_wrapper = true;
  config.wrapped = wrapped_names()[0];
  config.owned = wrapped_family(*config.family, config.wrapped);
  config.family = config.owned.get();
  return config;
}

}  // namespace

HfConfig parse_hf_config(const json& object, std::string_view where, const Family* given) {
  if (!object.is_object()) throw Error(ErrorCode::kCorruptData, cat(where, ": expected a JSON object"));
  if (given == nullptr && is_wrapper(object)) return parse_wrapper(object, where);
  const ConfigKeys keys(object, where);
  HfConfig config;
  config.original = object;
  if (keys.find("model_type") == nullptr) keys.fail(ErrorCode::kCorruptData, "model_type", "is missing");
  try {
    config.family = given != nullptr ? given : &find_family(keys.text("model_type", ""));
  } catch (const Error& error) {
    throw error.within(where);
  }
  const Family& family = *config.family;
  for (const RequiredFlag& flag : family.required) {
    if (keys.flag(flag.hf, flag.value) != flag.value) keys.unsupported(flag.hf);
  }
  // Qwen's: windows from a given layer on.
  if (keys.flag("use_sliding_window", false)) keys.unsupported("use_sliding_window");
  read_quantization(keys, where, config);

  core::TransformerConfig& model = config.model;
  apply_structure(family, model);
  read_keys(keys, family, model);
  read_heads(keys, family, model);
  read_activation(keys, family, model);
  read_experts(keys, family, model);
  model.untie_embeddings_and_output_weights = !keys.flag("tie_word_embeddings", family.default_tied);
  if (model.has_rotary_embedding()) read_rotary(keys, where, family, model);
  read_layer_types(keys, family, model);
  model.resolve(model.max_position_embeddings);
  config.dtype = config_dtype(keys);
  const bool is_odd = model.kv_channels % 2 != 0 && model.rotary_percent == 1.0;
  if (model.has_rotary_embedding() && !model.multi_latent_attention && (is_odd || model.rotary_dim() < 2)) {
    keys.fail(ErrorCode::kUnsupported, "head_dim",
              cat("(or hidden size / heads) is ", model.kv_channels, ", of which a fraction of ", model.rotary_percent,
                  " is rotated; RoPE needs an even number"));
  }
  config.unused_keys = keys.unused(model, family.harmless);
  return config;
}

HfConfig read_hf_config(const std::string& path, const Family* family) {
  const bool is_folder = std::filesystem::is_directory(path);
  if (is_folder) core::confine_reads(path);
  const std::string file = is_folder ? (std::filesystem::path(path) / "config.json").string() : path;
  return parse_hf_config(read_json(file, kMaxConfigBytes), file, family);
}

bool same_model(const core::TransformerConfig& a, const core::TransformerConfig& b) {
  return model_differences(a, b).empty();
}

std::string model_differences(const core::TransformerConfig& a, const core::TransformerConfig& b) {
  std::string text;
  const auto add = [&](std::string flag, const auto& value) {
    std::ranges::replace(flag, '_', '-');
    text += cat(text.empty() ? "--" : ", --", flag, " ", value);
  };
  core::TransformerConfig::fields([&](const char* name, auto member, const char*) {
    const std::string_view field = name;
    for (const char* free : {"init_method_std", "hidden_dropout", "attention_dropout", "make_vocab_size_divisible_by",
                             "group_query_attention", "num_query_groups"}) {
      if (field == free) return;
    }
    if (a.*member != b.*member) add(name, a.*member);
  });
  if (a.query_groups() != b.query_groups()) add("num_query_groups", a.query_groups());
  return text;
}

bool can_express_layers(const Family& family, const core::TransformerConfig& model) {
  if (!model.has_experts()) return family.expert_layers == ExpertLayers::kNone;
  switch (family.expert_layers) {
    case ExpertLayers::kNone:
      return false;
    case ExpertLayers::kAll:
      return first_layer_with_experts(model) == 0;
    case ExpertLayers::kAfterFirst:
      return first_layer_with_experts(model).has_value();
    case ExpertLayers::kSparseStep:
      return true;
  }
  return false;
}

json make_hf_config(const core::TransformerConfig& model, const json& original, core::DType dtype,
                    const Family* family) {
  json out = original.is_object() ? original : json::object();
  bool kept = false;
  if (out.contains("model_type")) {
    core::TransformerConfig said = parse_hf_config(out, "the stored config.json", family).model;
    if (model.mtp_num_layers == 0) said.mtp_num_layers = 0;
    kept = same_model(said, model);
  }
  if (!kept && family == nullptr && is_wrapper(out)) {
    throw Error(ErrorCode::kUnsupported,
                "the stored config.json of the multimodal model describes another language model");
  }
  if (!kept && family != nullptr) {
    if (const std::string lost = lost_by(*family, model); !lost.empty()) {
      throw Error(ErrorCode::kUnsupported,
                  cat("a config.json of ", family->model_type, " cannot express this model: it has no key for ", lost));
    }
  }
  if (!kept) set_model_keys(out, model, family != nullptr ? *family : family_of_model(model));
  const char* key = out.contains("dtype") ? "dtype" : "torch_dtype";
  out[key] = torch_name(dtype);
  return out;
}

std::shared_ptr<const Family> family_of_result(const json& config, const json& model_extra, const Family* named) {
  const auto unowned = [](const Family& family) {
    return std::shared_ptr<const Family>(&family, [](const Family*) {});
  };
  if (named != nullptr) return unowned(*named);
  if (is_wrapper(config)) {
    const json names = model_extra.value("wrapped", json());
    WrappedNames wrapped = wrapped_names()[0];
    if (names.is_object()) wrapped = {names.value("prefix", wrapped.prefix), names.value("output", wrapped.output)};
    const json text = text_config(config, "config.json");
    return wrapped_family(find_family(text["model_type"].get<std::string>()), wrapped);
  }
  // The map belongs to the source's folder: it applies to a config.json with the same model_type.
  const auto type_of = [](const json& any) { return any.is_object() ? any.value("model_type", json()) : json(); };
  const json map = model_extra.value("name_map", json());
  if (map.is_string() && type_of(config) == type_of(model_extra.value("hf_config", json()))) {
    const auto user = std::make_shared<const UserFamily>(
        nlohmann::ordered_json::parse(map.get_ref<const std::string&>()), "the stored name map");
    return {user, &user->family()};
  }
  return unowned(find_family(config.at("model_type").get<std::string>()));
}

std::vector<std::string> differences_of_training(const core::TransformerConfig& model) {
  constexpr double kLatentEpsilon = 1e-6;  // of DeepseekV3RMSNorm where it is made without one
  std::vector<std::string> differences;
  if (model.multi_latent_attention && model.qk_layernorm && model.norm_epsilon != kLatentEpsilon) {
    differences.push_back(cat("rms_norm_eps ", model.norm_epsilon,
                              " is that of all norms in training here and in Megatron; in transformers the norms of "
                              "q_lora_rank and kv_lora_rank have ",
                              kLatentEpsilon));
  }
  const int64_t group_topk = model.moe_router_group_topk,
                of_each = group_topk > 0 ? model.moe_router_topk / group_topk : 0;
  if (group_topk >= model.moe_router_num_groups) return differences;  // all groups, or none
  const bool by_best = model.moe_router_score_function == "softmax";
  if (of_each == (by_best ? 1 : 2)) return differences;
  differences.push_back(cat("transformers ranks groups of experts by ",
                            by_best ? "the highest score" : "the 2 highest scores", " of each, Megatron by the ",
                            of_each, " highest"));
  return differences;
}

std::string hf_json_text(const json& object) { return object.dump(2, ' ', /*ensure_ascii=*/true) + "\n"; }

}  // namespace ms::convert
