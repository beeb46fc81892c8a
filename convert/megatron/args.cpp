#include "convert/megatron/args.h"

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "convert/detail/printable.h"
#include "convert/megatron/window_size.h"
#include "core/error.h"
#include "core/sharded_tensor.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

// Members that change what the model computes and are not supported.
constexpr const char* kUnknownModels[] = {"quick_geglu", "experimental_attention_variant", "hybrid_override_pattern",
                                          "apply_residual_connection_post_layernorm",
                                          "heterogeneous_layers_config_path"};

template <class T>
void take(const MegatronArgs& args, const char* name, T& field) {
  if constexpr (std::is_same_v<T, bool>) {
    if (const auto value = args.integer(name)) field = *value != 0;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    field = args.integer(name).value_or(field);
  } else if constexpr (std::is_same_v<T, double>) {
    field = args.real(name).value_or(field);
  } else {
    field = args.text(name).value_or(field);
  }
}

// Fixed in Megatron for Llama 3's scaling: megatron/core/models/common/embeddings/rotary_pos_embedding.py.
constexpr int64_t kLlama3OriginalPositions = 8192;
constexpr double kLlama3LowFactor = 1, kLlama3HighFactor = 4;

// MindSpeed-LLM's lists; its args have no factor but Megatron's default. Ours are texts, as on its command line.
void take_longrope(const MegatronArgs& args, core::TransformerConfig& model) {
  if (args.is_set("long_mscale") || args.is_set("short_mscale")) {
    throw Error(ErrorCode::kUnsupported, cat(args.where(), ": args.long_mscale and args.short_mscale: longrope with a ",
                                             "factor for each length is not supported"));
  }
  for (const auto& [name, field] : {std::pair{"short_factor", &core::TransformerConfig::rope_scaling_short_factor},
                                    std::pair{"long_factor", &core::TransformerConfig::rope_scaling_long_factor}}) {
    const auto list = args.find(name);
    if (list && list->is(PickleKind::kString)) {
      model.*field = std::string(list->text());
    } else if (list && (list->is(PickleKind::kList) || list->is(PickleKind::kTuple))) {
      std::vector<double> factors;
      for (const PickleValue item : list->items()) {
        const bool is_number = item.is(PickleKind::kInt) || item.is(PickleKind::kFloat);
        factors.push_back(is_number ? item.real() : 0);  // which validate() refuses
      }
      model.*field = core::TransformerConfig::rope_factor_text(factors);
      model.rope_scaling_factor = 1;  // resolve() derives it
    }
  }
}

// Megatron scales as Llama 3 (use_rope_scaling) or linearly (rotary_seq_len_interpolation_factor); MindSpeed-LLM
// selects by a type, and its other members have defaults even without scaling.
void take_rope_scaling(const MegatronArgs& args, core::TransformerConfig& model) {
  const core::TransformerConfig plain;
  const double factor = args.real("rope_scaling_factor").value_or(8.0);
  const auto original = args.integer("rope_scaling_original_max_position_embeddings");
  model.rope_scaling_type = args.text("rope_scaling_type").value_or("none");
  model.rope_scaling_factor = factor;
  if (!model.has_rotary_embedding()) model.rope_scaling_type = "none";
  if (model.rope_scaling_type == "none" && model.has_rotary_embedding()) {
    if (args.flag("use_rope_scaling")) {
      model.rope_scaling_type = "llama3";
      model.rope_scaling_original_max_position_embeddings = kLlama3OriginalPositions;
      model.rope_scaling_low_freq_factor = kLlama3LowFactor;
      model.rope_scaling_high_freq_factor = kLlama3HighFactor;
    } else if (args.is_set("rotary_seq_len_interpolation_factor")) {
      model.rope_scaling_type = "linear";
      model.rope_scaling_factor = *args.real("rotary_seq_len_interpolation_factor");
    }
  } else if (model.rope_scaling_type != "none") {
    model.rope_scaling_original_max_position_embeddings = original.value_or(0);
    take(args, "low_freq_factor", model.rope_scaling_low_freq_factor);
    take(args, "high_freq_factor", model.rope_scaling_high_freq_factor);
    take(args, "beta_fast", model.rope_scaling_beta_fast);
    take(args, "beta_slow", model.rope_scaling_beta_slow);
  }
  if (model.rope_scaling_type == "longrope") take_longrope(args, model);
  if (model.rope_scaling_type == "none") {
    model.rope_scaling_factor = plain.rope_scaling_factor;
    model.rope_scaling_original_max_position_embeddings = plain.rope_scaling_original_max_position_embeddings;
    model.rope_scaling_mscale = plain.rope_scaling_mscale;
    model.rope_scaling_mscale_all_dim = plain.rope_scaling_mscale_all_dim;
  }
}

}  // namespace

MegatronArgs::MegatronArgs(PickleValue value, std::string where) : where_(std::move(where)) {
  std::optional<PickleValue> members;
  if (value.is(PickleKind::kDict)) members = value;
  if (value.is_call_of("argparse", "Namespace") || value.is_call_of("types", "SimpleNamespace")) {
    members = value.state();
  }
  if (!members || !members->is(PickleKind::kDict)) {
    throw Error(ErrorCode::kCorruptData, cat(where_, ": args is not a Namespace of argparse"));
  }
  for (const auto& [name, member] : members->pairs()) {
    if (name.is(PickleKind::kString)) members_.emplace(name.text(), member);
  }
}

std::optional<PickleValue> MegatronArgs::find(std::string_view name) const {
  const auto found = members_.find(name);
  if (found == members_.end() || found->second.is(PickleKind::kNone)) return std::nullopt;
  return found->second;
}

void MegatronArgs::refuse(std::string_view name, const char* expected) const {
  throw Error(ErrorCode::kCorruptData, cat(where_, ": args.", name, " is not ", expected));
}

std::optional<int64_t> MegatronArgs::integer(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  if (value->is(PickleKind::kBool)) return value->boolean();
  if (!value->is(PickleKind::kInt)) refuse(name, "an integer");
  return value->integer();
}

std::optional<double> MegatronArgs::real(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  if (!value->is(PickleKind::kInt) && !value->is(PickleKind::kFloat)) refuse(name, "a number");
  return value->real();
}

std::optional<std::string> MegatronArgs::text(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  if (!value->is(PickleKind::kString)) refuse(name, "a text");
  return std::string(value->text());
}

bool MegatronArgs::flag(std::string_view name) const { return integer(name).value_or(0) != 0; }

bool MegatronArgs::is_set(std::string_view name) const {
  const auto value = find(name);
  if (!value) return false;
  if (value->is(PickleKind::kBool)) return value->boolean();
  if (value->is(PickleKind::kInt) || value->is(PickleKind::kFloat)) return value->real() != 0;
  if (value->is(PickleKind::kString)) return !value->text().empty();
  if (value->is(PickleKind::kList) || value->is(PickleKind::kTuple)) return !value->items().empty();
  return true;
}

int MegatronArgs::size(std::string_view name) const {
  const int64_t value = integer(name).value_or(1);
  if (value < 1 || value > 1 << 20) refuse(name, "a parallel size");
  return static_cast<int>(value);
}

namespace {

// A list of layers, as text: the flag is a number or a list made from the flag's text; the number `absent` stands for
// none.
std::string layer_text(const MegatronArgs& args, std::string_view name, int64_t absent) {
  const auto value = args.find(name);
  if (value && (value->is(PickleKind::kList) || value->is(PickleKind::kTuple))) {
    std::string list;
    for (const PickleValue item : value->items()) {
      const int64_t has = item.is(PickleKind::kInt) ? item.integer() : -1;
      list += core::cat(list.empty() ? "[" : ",", has);
    }
    return list + "]";
  }
  if (value && value->is(PickleKind::kString)) return std::string(value->text());
  return std::to_string(args.integer(name).value_or(absent));
}

// moe_layer_freq is a number or a list made from the flag's text; MindSpeed-LLM also has first_k_dense_replace.
std::string layers_with_experts(const MegatronArgs& args) {
  const auto value = args.find("moe_layer_freq");
  if (value && !value->is(PickleKind::kInt)) return layer_text(args, "moe_layer_freq", 1);
  const int64_t frequency = args.integer("moe_layer_freq").value_or(1);
  const int64_t dense = args.integer("first_k_dense_replace").value_or(0),
                layers = args.integer("num_layers").value_or(0);
  if (dense <= 0 || layers < 1 || layers > 1 << 20 || frequency < 1) return std::to_string(frequency);
  std::string list;
  for (int64_t i = 0; i < layers; ++i)
    list += core::cat(list.empty() ? "[" : ",", i >= dense && i % frequency == 0 ? 1 : 0);
  return list + "]";
}

// RoPE scaling of latent attention, for which Megatron has separate names; MindSpeed-LLM uses the members of
// take_rope_scaling.
void take_latent_rope(const MegatronArgs& args, core::TransformerConfig& model) {
  if (!model.multi_latent_attention || model.rope_scaling_type != "none") return;
  // Megatron's latent attention scales by default (MLATransformerConfig); MindSpeed-LLM's, whose args have their own
  // type member, does not. A factor of 1, the default of Megatron's flag, scales nothing.
  const bool is_mindspeed = args.members().contains("rope_scaling_type");
  const auto said = args.text("rope_type");
  if (said.value_or(is_mindspeed ? "rope" : "yarn") != "yarn") return;
  if (!said && args.real("rotary_scaling_factor") == 1.0) return;
  model.rope_scaling_type = "yarn";
  model.rope_scaling_factor = args.real("rotary_scaling_factor").value_or(40.0);
  model.rope_scaling_original_max_position_embeddings = args.integer("original_max_position_embeddings").value_or(4096);
  model.rope_scaling_beta_fast = args.real("beta_fast").value_or(32.0);
  model.rope_scaling_beta_slow = args.real("beta_slow").value_or(1.0);
  model.rope_scaling_mscale = args.real("mscale").value_or(1.0);
  model.rope_scaling_mscale_all_dim = args.real("mscale_all_dim").value_or(0.0);
}

}  // namespace

namespace {

// Removes no-op layers from the list of layers with experts: args count them as layers, the model does not.
void leave_out_noop_layers(std::span<const int64_t> noop_layers, core::TransformerConfig& model) {
  if (noop_layers.empty()) return;
  if (noop_layers.back() >= model.num_layers || static_cast<int64_t>(noop_layers.size()) >= model.num_layers) {
    throw Error(ErrorCode::kInvalidArgument, cat("no-op layers ", noop_layers,
                                                 " are not all among, or are all of, --num-layers ", model.num_layers));
  }
  if (model.has_experts() && model.moe_layer_freq != "1") {
    const std::vector<bool> all = model.layers_with_experts();
    model.moe_layer_freq.clear();
    for (size_t slot = 0; slot < all.size(); ++slot) {
      if (std::binary_search(noop_layers.begin(), noop_layers.end(), static_cast<int64_t>(slot))) continue;
      model.moe_layer_freq += cat(model.moe_layer_freq.empty() ? "[" : ",", all[slot] ? 1 : 0);
    }
    model.moe_layer_freq += "]";
  }
  model.num_layers -= static_cast<int64_t>(noop_layers.size());
}

}  // namespace

PipelineExtras pipeline_extras(const MegatronArgs& args) {
  PipelineExtras extras;
  if (const auto method = args.find("schedules_method")) {
    if (!method->is(PickleKind::kString) || method->text() != "dualpipev") {
      throw Error(ErrorCode::kUnsupported,
                  cat(args.where(), ": args.schedules_method is not dualpipev, the only supported one"));
    }
    extras.dualpipev = true;
  }
  if (!args.is_set("noop_layers")) return extras;
  const auto refuse = [&] [[noreturn]] {
    throw Error(ErrorCode::kCorruptData, cat(args.where(), ": args.noop_layers is not a list of layers"));
  };
  const PickleValue value = *args.find("noop_layers");
  std::vector<int64_t>& layers = extras.noop_layers;
  if (value.is(PickleKind::kString)) {
    const std::string_view text = value.text();
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      int64_t layer = -1;
      const auto [end, wrong] = std::from_chars(text.data() + at, text.data() + comma, layer);
      if (wrong != std::errc() || end != text.data() + comma) refuse();
      layers.push_back(layer);
      at = comma + 1;
    }
  } else {
    const bool is_call = value.is_call_of("builtins", "set");
    if (is_call && value.arguments().size() != 1) refuse();
    const PickleValue list = is_call ? value.arguments()[0] : value;
    if (!list.is(PickleKind::kSet) && !list.is(PickleKind::kList) && !list.is(PickleKind::kTuple)) refuse();
    for (const PickleValue item : list.items()) {
      if (!item.is(PickleKind::kInt)) refuse();
      layers.push_back(item.integer());
    }
  }
  std::sort(layers.begin(), layers.end());
  if (layers.empty() || layers.front() < 0 || std::adjacent_find(layers.begin(), layers.end()) != layers.end()) {
    refuse();
  }
  return extras;
}

namespace {

bool is_layer_list(std::string_view name) {
  return name == "moe_layer_freq" || name == "no_rope_freq" || name == "window_attn_skip_freq";
}

// MindSpeed-LLM's name of longrope's list; "" if the field is none.
std::string_view longrope_list(std::string_view name) {
  if (name == "rope_scaling_short_factor") return "short_factor";
  return name == "rope_scaling_long_factor" ? "long_factor" : "";
}

// Fields that Megatron has no member for; left out of args if they have their default.
constexpr std::string_view kOwnFields[] = {"pre_norm",          "parallel_residual",    "qk_layernorm_all_heads",
                                           "rotary_base_local", "embedding_multiplier", "residual_multiplier",
                                           "logits_scaling",    "add_dense_bias",       "add_mlp_bias"};

bool is_own_field(std::string_view name) {
  return std::find(std::begin(kOwnFields), std::end(kOwnFields), name) != std::end(kOwnFields);
}

}  // namespace

std::string megatron_cannot_express(const core::TransformerConfig& model) {
  const core::TransformerConfig plain;
  std::string list;
  core::TransformerConfig::fields([&]<class T>(const char* name, T core::TransformerConfig::*member, const char*) {
    if (!is_own_field(name) || model.*member == plain.*member) return;
    list += cat(list.empty() ? "" : ", ", name, " ");
    if constexpr (std::is_same_v<T, bool>) {
      list += model.*member ? "on" : "off";
    } else {
      list += cat(model.*member);
    }
  });
  return list;
}

core::TransformerConfig megatron_model(const MegatronArgs& args, std::span<const int64_t> noop_layers) {
  for (const char* name : kUnknownModels) {
    if (!args.is_set(name)) continue;
    throw Error(ErrorCode::kUnsupported, cat(args.where(), ": args.", name,
                                             " is set: such a model is not supported yet, only dense GPT models"));
  }
  core::TransformerConfig model;
  core::TransformerConfig::fields([&](const char* name, auto member, const char*) {
    if (!is_layer_list(name)) take(args, name, model.*member);
  });
  model.no_rope_freq = layer_text(args, "no_rope_freq", 0);
  model.window_attn_skip_freq = layer_text(args, "window_attn_skip_freq", 0);
  take_window(args, model);
  model.moe_layer_freq = layers_with_experts(args);
  if (args.is_set("n_shared_experts") && !args.is_set("moe_shared_expert_intermediate_size")) {
    int64_t& size = model.moe_shared_expert_intermediate_size;
    if (__builtin_mul_overflow(args.integer("n_shared_experts").value_or(0),
                               args.integer("moe_ffn_hidden_size").value_or(model.ffn_hidden_size), &size)) {
      size = INT64_MAX;  // so that validate() refuses it
    }
  }
  model.vocab_size = 1;
  take(args, "layernorm_epsilon", model.norm_epsilon);
  if (args.flag("use_rotary_position_embeddings")) model.position_embedding_type = "rope";
  if (model.has_learned_positions() && args.integer("add_position_embedding").value_or(1) == 0) {
    model.position_embedding_type = "none";
  }
  if (args.flag("openai_gelu")) model.bias_gelu_fusion = true;  // the same tanh approximation
  if (!model.group_query_attention) model.num_query_groups = 1;
  take_rope_scaling(args, model);
  take_latent_rope(args, model);
  try {
    leave_out_noop_layers(noop_layers, model);
    model.resolve(args.integer("seq_length").value_or(0));
    model.validate();
  } catch (const Error& error) {
    const bool lies = error.code() == ErrorCode::kInvalidArgument;
    throw Error(lies ? ErrorCode::kCorruptData : error.code(), cat(args.where(), ": args: ", error.what()));
  }
  return model;
}

void require_dense_model(const core::TransformerConfig& model, std::string_view where, std::string_view what) {
  const char* kind = model.has_experts()            ? "experts"
                     : model.multi_latent_attention ? "latent attention"
                     : model.mtp_num_layers > 0     ? "multi-token prediction"
                                                    : nullptr;
  if (kind != nullptr) throw Error(ErrorCode::kUnsupported, cat(where, ": the model has ", kind, ": ", what));
}

bool megatron_supports_rope_scaling(const core::TransformerConfig& model) {
  const bool as_llama3 = model.rope_scaling_original_max_position_embeddings == kLlama3OriginalPositions &&
                         model.rope_scaling_low_freq_factor == kLlama3LowFactor &&
                         model.rope_scaling_high_freq_factor == kLlama3HighFactor;
  const std::string& type = model.rope_scaling_type;
  if (model.multi_latent_attention) return type == "none" || type == "yarn";
  return type == "none" || type == "linear" || (type == "llama3" && as_llama3);
}

namespace {

// Members that use None where our field is 0 (the factor: 1).
bool is_none(const core::TransformerConfig& model, std::string_view name, const MegatronArg& value) {
  if (name == "moe_router_topk_scaling_factor") return value == MegatronArg(1.0);
  if (name == "softmax_scale") return value == MegatronArg(0.0);
  for (const std::string_view each : {"num_experts", "mtp_num_layers", "q_lora_rank", "moe_router_num_groups",
                                      "moe_router_group_topk", "moe_shared_expert_intermediate_size"}) {
    if (name == each) return value == MegatronArg(int64_t{0});
  }
  for (const std::string_view each :
       {"moe_layer_freq", "moe_ffn_hidden_size", "moe_router_topk", "moe_router_score_function"}) {
    if (name == each) return !model.has_experts();
  }
  return false;
}

// A number, or a list with one entry per layer: has experts, no RoPE, has a window.
MegatronArg layer_frequency(const core::TransformerConfig& model, std::string_view name) {
  std::vector<int64_t> list;
  if (name == "no_rope_freq") {
    if (model.no_rope_freq == "0") return {};
    for (const bool has : model.layers_with_rope()) list.push_back(has ? 0 : 1);
  } else if (name == "window_attn_skip_freq") {
    if (model.window_attn_skip_freq == "0") return {};
    for (const int64_t window : model.windows_of_layers()) list.push_back(window > 0 ? 1 : 0);
  } else {
    if (model.moe_layer_freq == "1") return int64_t{1};
    for (const bool has : model.layers_with_experts()) list.push_back(has ? 1 : 0);
  }
  return list;
}

// RoPE scaling of latent attention under the names of megatron-core's MLATransformerConfig.
void add_latent_rope(const core::TransformerConfig& model, MegatronArgList& args) {
  const bool yarn = model.rope_scaling_type == "yarn";
  args.emplace_back("rope_type", yarn ? "yarn" : "rope");
  if (!yarn) return;
  args.emplace_back("rotary_scaling_factor", model.rope_scaling_factor);
  args.emplace_back("original_max_position_embeddings", model.rope_scaling_original_max_position_embeddings);
  args.emplace_back("beta_fast", model.rope_scaling_beta_fast);
  args.emplace_back("beta_slow", model.rope_scaling_beta_slow);
  args.emplace_back("mscale", model.rope_scaling_mscale);
  args.emplace_back("mscale_all_dim", model.rope_scaling_mscale_all_dim);
}

}  // namespace

MegatronArgList megatron_args(const core::TransformerConfig& model) {
  MegatronArgList args;
  core::TransformerConfig::fields([&](const char* name, auto member, const char*) {
    const core::TransformerConfig plain;
    const std::string_view list = longrope_list(name);
    if ((is_own_field(name) || !list.empty()) && model.*member == plain.*member) return;
    if (model.squared_relu && std::string_view(name) == "bias_gelu_fusion") {
      args.emplace_back(name, false);  // Megatron fuses the bias with GELU, SiLU and quick GELU only
      return;
    }
    const MegatronArg value = is_layer_list(name) ? layer_frequency(model, name) : MegatronArg(model.*member);
    args.emplace_back(list.empty() ? name : list, is_none(model, name, value) ? MegatronArg() : value);
  });
  const bool knows_scaling = megatron_supports_rope_scaling(model);
  const bool linear = model.rope_scaling_type == "linear";
  args.emplace_back("add_position_embedding", true);
  args.emplace_back("use_rotary_position_embeddings", model.has_rotary_embedding());
  args.emplace_back("use_rope_scaling", knows_scaling && model.rope_scaling_type == "llama3");
  args.emplace_back("rotary_seq_len_interpolation_factor",
                    linear ? MegatronArg(model.rope_scaling_factor) : MegatronArg());
  args.emplace_back("apply_query_key_layer_scaling", false);
  if (model.multi_latent_attention) add_latent_rope(model, args);
  return args;
}

namespace {

// Returns the vocabulary size in args; nullopt if it cannot be the true one.
std::optional<int64_t> args_vocab_size(const MegatronArgs& args, int64_t padded_rows, int tp) {
  const int64_t said = args.integer("vocab_size").value_or(0);
  // megatron/training/tokenizer: the null tokenizer adds an end-of-document token.
  const int64_t more = args.text("tokenizer_type").value_or("") == "NullTokenizer" ? 1 : 0;
  const int64_t multiple =
      std::max<int64_t>(1, std::min(args.integer("make_vocab_size_divisible_by").value_or(1), padded_rows)) * tp;
  if (said < 1 || said > padded_rows - more || padded_rows - said - more >= multiple) return std::nullopt;
  return said + more;
}

}  // namespace

int64_t true_vocab_size(const MegatronArgs& args, int64_t asked, int64_t padded_rows, int tp,
                        std::vector<std::string>& decisions) {
  if (asked > padded_rows) {
    throw Error(ErrorCode::kInvalidArgument, cat("--true-vocab-size ", asked, ", but ", args.where(),
                                                 " belongs to a model of ", padded_rows, " rows"));
  }
  const std::optional<int64_t> said = args_vocab_size(args, padded_rows, tp);
  const int64_t rows = asked > 0 ? asked : said.value_or(padded_rows);
  if (rows < padded_rows) {
    decisions.push_back(cat("", padded_rows - rows, " of ", padded_rows, " vocabulary rows are padding and left out"));
  } else if (asked == 0 && !said) {
    const auto other = args.integer("vocab_size");
    decisions.push_back(
        cat(other ? cat("args.vocab_size ", *other, " does not fit ", padded_rows, " rows, which are")
                  : cat("args lack the true vocabulary size: the vocabulary has ", padded_rows, " rows, which are"),
            " all kept; --true-vocab-size overrides this"));
  }
  return rows;
}

}  // namespace ms::convert
