#include "train/megatron_yaml.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "core/error.h"
#include "core/flag_syntax.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;
using nlohmann::ordered_json;

// Arguments that have no flag here, with the value, besides null and false, that changes nothing. kAny: every value.
constexpr std::string_view kAny = "*";
struct Known {
  std::string_view key, value;
};
constexpr Known kWithoutFlag[] = {
    // Set by Megatron itself, or functions.
    {"params_dtype", ""},
    {"pipeline_dtype", ""},
    {"autocast_dtype", ""},
    {"timers", ""},
    {"finalize_model_grads_func", ""},
    {"grad_scale_func", ""},
    {"no_sync_func", ""},
    {"grad_sync_func", ""},
    {"param_sync_func", ""},
    {"_cpu_offloading_context", ""},
    {"deallocate_pipeline_outputs", kAny},
    {"batch_p2p_comm", kAny},
    {"batch_p2p_sync", kAny},
    {"perform_initialization", kAny},
    {"enable_autocast", ""},
    // Only with an accelerator.
    {"memory_efficient_layer_norm", kAny},
    {"distribute_saved_activations", kAny},
    {"num_microbatches_with_partial_activation_checkpoints", kAny},
    {"overlap_p2p_comm", kAny},
    {"use_ring_exchange_p2p", kAny},
    {"barrier_with_L1_time", kAny},
    {"cpu_offloading", ""},
    {"cpu_offloading_num_layers", "0"},
    {"cpu_offloading_weights", kAny},
    {"cpu_offloading_activations", kAny},
    {"tp_comm_overlap_cfg", kAny},
    {"tp_comm_split_ag", kAny},
    {"tp_comm_atomic_ag", kAny},
    {"tp_comm_split_rs", kAny},
    {"tp_comm_atomic_rs", kAny},
    {"tp_comm_bulk_wgrad", kAny},
    {"tp_comm_bulk_dgrad", kAny},
    {"align_param_gather", kAny},
    {"lazy_mpu_init", ""},
    // Of other models and programs.
    {"onnx_safe", kAny},
    {"bert_binary_head", kAny},
    {"encoder_num_layers", ""},
    {"decoder_num_layers", ""},
    {"encoder_seq_length", ""},
    {"decoder_seq_length", ""},
    {"sample_rate", "1.0"},
    {"mask_prob", kAny},
    {"short_seq_prob", kAny},
    {"sgd_momentum", kAny},
    {"adlr_autoresume", ""},
    {"adlr_autoresume_interval", kAny},
    {"fp16_lm_cross_entropy", ""},
    {"data_parallel_random_init", ""},
    // What changes the model or the run.
    {"init_method", ""},
    {"output_layer_init_method", ""},
    {"embedding_init_method", ""},
    {"virtual_pipeline_model_parallel_size", ""},
    {"fp8", ""},
    {"fp8_interval", kAny},
    {"fp8_wgrad", kAny},
    {"moe_token_dropping", ""},
};
// Megatron's defaults of flags that are refused here.
constexpr Known kDefaults[] = {{"fp8_amax_history_len", "1"},
                               {"fp8_margin", "0"},
                               {"fp8_amax_compute_algo", "most_recent"},
                               {"clone_scatter_output_in_embedding", "true"}};
// Fields of Megatron's TransformerConfig whose flags have other names.
constexpr Known kOtherNames[] = {
    {"layernorm_zero_centered_gamma", "apply_layernorm_1p"},
    {"num_moe_experts", "num_experts"},
    {"microbatch_group_size_per_vp_stage", "microbatch_group_size_per_virtual_pipeline_stage"}};
constexpr std::string_view kSections[] = {"language_model", "model_parallel"};

std::string text_of(const ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

bool is_absent(const ordered_json& value) { return value.is_null() || value == false; }

const Known* find(std::span<const Known> list, std::string_view key) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const Known& each) { return each.key == key; });
  return found == list.end() ? nullptr : &*found;
}

std::string dashed(std::string_view key) {
  std::string flag = cat("--", key);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

class Translator {
 public:
  Translator(const core::ConfigFields& fields, std::string_view where) : where_(where) {
    std::set<std::string> arguments;  // not flags of the program, such as --help
    for (const json& group : fields.dump()) {
      for (const auto& item : group.items()) arguments.insert(item.key());
    }
    for (const json& entry : fields.flags()) {
      if (entry.contains("field") && !arguments.contains(entry.at("field").get<std::string>())) continue;
      flags_.emplace(entry.at("flag").get<std::string>(), entry);
    }
  }

  void add(const ordered_json& arguments) {
    for (const auto& [key, value] : arguments.items()) {
      if (value.is_object()) {
        if (std::find(std::begin(kSections), std::end(kSections), key) == std::end(kSections)) {
          fail(ErrorCode::kInvalidArgument,
               cat("\"", key, "\" is no section; expected language_model or model_parallel"));
        }
        add(value);
      } else {
        add(key, value);
      }
    }
  }

  // language_model's activation_func alone makes Megatron's model; swiglu and the like beside it have no effect.
  void take_activation(const ordered_json& yaml) {
    const auto section = yaml.find("language_model");
    if (section == yaml.end() || !section->is_object() || !section->contains("activation_func")) return;
    const ordered_json& name = section->at("activation_func");
    const bool is_gated = section->contains("gated_linear_unit") && section->at("gated_linear_unit") == true;
    has_activation_ = true;
    if (name == "swiglu") {
      words_.emplace_back("--swiglu");
    } else if (name == "squaredrelu" && !is_gated) {
      words_.emplace_back("--squared-relu");
    } else if (name == "gelu") {
      words_.emplace_back(is_gated ? "--geglu" : "--no-bias-gelu-fusion");
    } else {
      fail(ErrorCode::kUnsupported, cat("activation_func is ", name.dump(), is_gated ? " with gated_linear_unit" : "",
                                        "; expected swiglu, squaredrelu or gelu, of which gelu may have a gate"));
    }
  }

  std::vector<std::string> take() { return std::move(words_); }

 private:
  [[noreturn]] void fail(ErrorCode code, const std::string& what) const { throw Error(code, cat(where_, ": ", what)); }

  const json* flag(const std::string& name) const {
    const auto found = flags_.find(name);
    return found == flags_.end() ? nullptr : &found->second;
  }

  void add(const std::string& key, const ordered_json& value) {
    for (const std::string_view part : {"activation_func", "gated_linear_unit", "bias_activation_fusion", "swiglu",
                                        "squared_relu", "openai_gelu", "bias_gelu_fusion"}) {
      if (has_activation_ && key == part) return;
    }
    if (key == "gated_linear_unit" || key == "bias_activation_fusion") {
      fail(ErrorCode::kInvalidArgument, cat(key, " needs activation_func in the section language_model"));
    }
    if (const Known* other = find(kOtherNames, key)) return add(std::string(other->value), value);
    const Known* usual = find(kDefaults, key);
    if (usual != nullptr && text_of(value) == usual->value) return;
    if (const json* entry = flag(dashed(key))) return add_flag(key, dashed(key), *entry, value);
    // A switch that turns something off, whose argument is what it turns off.
    if (const std::string off = dashed("no_" + key); flag(off) != nullptr) {
      if (value == false) words_.push_back(off);
      if (!value.is_boolean() && !value.is_null()) not_a_switch(key, value);
      return;
    }
    const Known* known = find(kWithoutFlag, key);
    if (known == nullptr) unknown(key);
    if (is_absent(value) || known->value == kAny || (!known->value.empty() && text_of(value) == known->value)) return;
    fail(ErrorCode::kUnsupported, cat(key, " is ", value.dump(), ", which is not supported; leave it out"));
  }

  void add_flag(const std::string& key, const std::string& name, const json& entry, const ordered_json& value) {
    const std::string kind = entry.at("kind");
    const bool is_switch = entry.at("max_values") == 0;
    if (value.is_null()) return;
    if (kind == "refused" && (is_absent(value) || value == "0" || value == "")) return;
    if (kind == "refused") {
      words_.push_back(name);  // parse_flags says why
    } else if (is_switch) {
      if (!value.is_boolean()) not_a_switch(key, value);
      if (value == true) words_.push_back(name);
      if (const std::string off = dashed("no_" + key); value == false && flag(off) != nullptr) words_.push_back(off);
    } else if (kind == "notice" && (value == false || value == "")) {
      return;
    } else {
      add_values(key, name, entry, value);
    }
  }

  void add_values(const std::string& key, const std::string& name, const json& entry, const ordered_json& value) {
    std::vector<std::string> values;
    if (value.is_array()) {
      for (const ordered_json& item : value) values.push_back(text_of(item));
      if (key == "window_size" && values.size() == 2) values = {cat(values[0], ",", values[1])};
    } else if (key == "data_path") {  // several words, as Megatron splits it
      std::istringstream words(text_of(value));
      for (std::string word; words >> word;) values.push_back(word);
    } else {
      if (value.is_boolean()) fail(ErrorCode::kInvalidArgument, cat(key, " is ", value.dump(), "; expected a value"));
      values.push_back(text_of(value));
    }
    if (values.size() > 1 && entry.at("max_values") == 1) {
      fail(ErrorCode::kInvalidArgument, cat(key, ": one value expected, not a list"));
    }
    if (values.empty()) return;
    if (values.size() == 1) {
      words_.push_back(cat(name, "=", values[0]));
      return;
    }
    words_.push_back(name);
    words_.insert(words_.end(), values.begin(), values.end());
  }

  [[noreturn]] void not_a_switch(const std::string& key, const ordered_json& value) const {
    fail(ErrorCode::kInvalidArgument, cat(key, " is ", value.dump(), "; expected true or false"));
  }

  [[noreturn]] void unknown(const std::string& key) const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : flags_) {
      std::string each = name.substr(2);
      std::replace(each.begin(), each.end(), '-', '_');
      names.push_back(std::move(each));
    }
    for (const Known& known : kWithoutFlag) names.emplace_back(known.key);
    for (const Known& known : kOtherNames) names.emplace_back(known.key);
    const std::string near = core::nearest_word(key, names);
    fail(ErrorCode::kInvalidArgument,
         cat("unknown key \"", key, "\"", near.empty() ? "" : cat(". Did you mean ", near, "?")));
  }

  std::string_view where_;
  std::map<std::string, json> flags_;
  std::vector<std::string> words_;
  bool has_activation_ = false;
};

}  // namespace

std::vector<std::string> flags_of_megatron_yaml(const ordered_json& yaml, const core::ConfigFields& fields,
                                                std::string_view where) {
  if (yaml.is_null()) return {};
  if (!yaml.is_object()) throw Error(ErrorCode::kInvalidArgument, cat(where, ": expected \"name: value\" lines"));
  Translator translator(fields, where);
  translator.take_activation(yaml);
  translator.add(yaml);
  return translator.take();
}

}  // namespace ms::train
