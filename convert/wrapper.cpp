#include "convert/wrapper.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "convert/detail/printable.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

// transformers models/<name>/modeling_<name>.py, conversion_mapping.py.
constexpr std::string_view kWrappers[] = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl",   "gemma3",
                                          "llava",    "mistral3",   "llava_next", "vipllava"};

// Families for model_types of text_config that are not families themselves.
constexpr std::pair<std::string_view, std::string_view> kTextTypes[] = {
    {"qwen2_vl", "qwen2"},        {"qwen2_vl_text", "qwen2"}, {"qwen2_5_vl", "qwen2"},
    {"qwen2_5_vl_text", "qwen2"}, {"qwen3_vl_text", "qwen3"}, {"gemma3", "gemma3_text"}};

// A nested config omits its class's defaults: those of transformers' classes.
constexpr std::pair<std::string_view, const char*> kDefaults[] = {
    {"llama", R"({"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
                  "vocab_size": 32000, "max_position_embeddings": 2048})"},
    {"mistral", R"({"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
                    "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 131072})"},
    {"qwen2", R"({"hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
                  "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 32768,
                  "rms_norm_eps": 1e-05})"},
    {"qwen3", R"({"hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
                  "num_key_value_heads": 32, "vocab_size": 151936, "max_position_embeddings": 128000,
                  "head_dim": 128})"},
    {"gemma3_text", R"({"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
                        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208,
                        "max_position_embeddings": 131072})"}};

constexpr std::string_view kOtherParts[] = {
    "visual.",       "vision_tower.", "vision_model.",     "multi_modal_projector.",
    "image_newline", "embed_vision.", "vision_projector.", "vision_embed_tokens."};

std::string_view family_of_text(std::string_view model_type) {
  const auto found = std::find_if(std::begin(kTextTypes), std::end(kTextTypes),
                                  [&](const auto& each) { return each.first == model_type; });
  return found == std::end(kTextTypes) ? model_type : found->second;
}

class WrappedFamily {
 public:
  WrappedFamily(const Family& base, const WrappedNames& names) : names_(names), family(base) {
    family.prefix = names_.prefix;
    family.before = renamed(base.before, before_);
    family.after = renamed(base.after, after_);
  }

 private:
  std::span<const NameRule> renamed(std::span<const NameRule> rules, std::vector<NameRule>& into) {
    into.assign(rules.begin(), rules.end());
    for (NameRule& rule : into) {
      if (rule.canonical == kOutputLayer && !rule.is_copy) rule.hf = names_.output;
    }
    return into;
  }

  WrappedNames names_;
  std::vector<NameRule> before_, after_;

 public:
  Family family;
};

}  // namespace

std::span<const WrappedNames> wrapped_names() {
  static const std::array<WrappedNames, 4> names = {{{"model.language_model.", "lm_head.weight"},
                                                     {"language_model.model.", "language_model.lm_head.weight"},
                                                     {"language_model.model.", "lm_head.weight"},
                                                     {"model.", "lm_head.weight"}}};
  return names;
}

bool is_wrapper(const json& config) {
  const json type = config.is_object() ? config.value("model_type", json()) : json();
  return type.is_string() && std::find(std::begin(kWrappers), std::end(kWrappers),
                                       type.get_ref<const std::string&>()) != std::end(kWrappers);
}

std::vector<std::string_view> wrappers() { return {std::begin(kWrappers), std::end(kWrappers)}; }

json text_config(const json& config, std::string_view where) {
  const std::string wrapper = config.at("model_type").get<std::string>();
  json own = config.value("text_config", json());
  if (own.is_null()) {
    own = config;
    for (const char* other : {"vision_config", "vision_start_token_id", "vision_end_token_id", "vision_token_id"}) {
      own.erase(other);
    }
  }
  if (!own.is_object()) throw Error(ErrorCode::kCorruptData, cat(where, ": text_config is not a JSON object"));
  const json type = own.value("model_type", json(wrapper));
  if (!type.is_string()) throw Error(ErrorCode::kCorruptData, cat(where, ": text_config: model_type is not a string"));
  const std::string family(family_of_text(type.get_ref<const std::string&>()));
  json text = json::object();
  for (const auto& [model_type, defaults] : kDefaults) {
    if (model_type == family) text = json::parse(defaults);
  }
  text.update(own);
  text["model_type"] = family;
  if (config.contains("tie_word_embeddings")) text["tie_word_embeddings"] = config["tie_word_embeddings"];
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!text.contains(key) && config.contains(key)) text[key] = config[key];
  }
  return text;
}

std::shared_ptr<const Family> wrapped_family(const Family& family, const WrappedNames& names) {
  const auto wrapped = std::make_shared<const WrappedFamily>(family, names);
  return {wrapped, &wrapped->family};
}

bool is_wrapper_tensor(std::string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(6);
  return std::any_of(std::begin(kOtherParts), std::end(kOtherParts),
                     [&](std::string_view part) { return name.starts_with(part); });
}

}  // namespace ms::convert
