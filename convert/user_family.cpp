#include "convert/user_family.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "convert/detail/family_words.h"
#include "convert/detail/printable.h"
#include "convert/name_map.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/layout/parameter_specs.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;
using nlohmann::ordered_json;
using C = core::TransformerConfig;

constexpr int64_t kMaxBytes = 1 << 20;
constexpr std::string_view kLayer = "{layer}.";

[[noreturn]] void refuse(std::string_view where, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, cat(where, ": ", what));
}

ordered_json read_map(const std::string& path) {
  try {
    return ordered_json::parse(core::read_text(path, kMaxBytes));
  } catch (const nlohmann::json::exception& error) {
    refuse(path, cat("not valid JSON: ", core::json_error_text(error)));
  }
}

// Names of the parameters of any model, collected from example models that together have all of them.
const std::set<std::string, std::less<>>& canonical_names() {
  static const std::set<std::string, std::less<>> names = [] {
    C plain;
    plain.num_layers = plain.num_attention_heads = plain.hidden_size = plain.ffn_hidden_size = plain.kv_channels = 1;
    plain.vocab_size = plain.max_position_embeddings = plain.mtp_num_layers = 1;
    plain.qk_layernorm = plain.post_norm = plain.untie_embeddings_and_output_weights = true;
    C experts = plain;
    experts.num_experts = experts.moe_ffn_hidden_size = experts.moe_shared_expert_intermediate_size = 1;
    experts.moe_router_enable_expert_bias = experts.moe_shared_expert_gate = true;
    C latent = plain;
    latent.multi_latent_attention = true;
    latent.kv_lora_rank = latent.qk_head_dim = latent.qk_pos_emb_head_dim = latent.v_head_dim = 1;
    C latent_queries = latent;
    latent_queries.q_lora_rank = 1;
    std::set<std::string, std::less<>> all;
    for (const C* model : {&plain, &experts, &latent, &latent_queries}) {
      for (const layout::ParameterSpec& spec : layout::parameter_specs(*model)) all.insert(name_in_maps(spec));
    }
    return all;
  }();
  return names;
}

// The fields of a model by name, with the value that a map gives.
template <class Visit>
bool visit_field(std::string_view wanted, const Visit& visit) {
  bool found = false;
  C::fields([&](const char* name, auto member, const char*) {
    if (wanted != name) return;
    found = true;
    visit(member);
  });
  return found;
}

}  // namespace

class UserFamilyReader {
 public:
  UserFamilyReader(UserFamily& into, std::string_view where)
      : into_(into), family_(into.family_), map_(into.map_), where_(where) {}
  void read();

 private:
  void read_base();
  void read_text(const char* key, std::string_view& field) {
    if (const ordered_json* value = find(key)) field = keep(text_of(*value, key));
  }
  void read_structure();
  void read_config();
  void read_config_key(const std::string& key, const ordered_json& value);
  void read_flags();
  void read_lists();
  void read_rotary();
  void read_experts();
  void read_tensors();
  void add_tensor(const std::string& key, const ordered_json& names);
  void add_part(const std::string& key, Part part, const std::string& name, bool transposed, const std::string& also);
  void check_parts() const;
  void read_mtp();
  void sort_rules(const ordered_json& order);
  std::string name_in_layer(const std::string& name, const std::string& key);

  const ordered_json* find(std::string_view key) const {
    const auto at = map_.find(key);
    return at == map_.end() ? nullptr : &*at;
  }
  std::string text_of(const ordered_json& value, std::string_view key) const {
    if (!value.is_string()) refuse(where_, cat(printable(key), ": expected a string"));
    return value.get<std::string>();
  }
  template <class T>
  T typed(const ordered_json& value, std::string_view key, const char* expected) const {
    const bool fits = std::is_same_v<T, bool>      ? value.is_boolean()
                      : std::is_same_v<T, int64_t> ? value.is_number_integer()
                      : std::is_same_v<T, double>  ? value.is_number()
                                                   : value.is_string();
    if (!fits) refuse(where_, cat(printable(key), " is ", printable(value.dump()), "; expected ", expected));
    return value.get<T>();
  }
  const ordered_json& object_of(const ordered_json& value, std::string_view key) const {
    if (!value.is_object()) refuse(where_, cat(printable(key), ": expected a JSON object"));
    return value;
  }
  std::string_view keep(std::string_view text) { return into_.keep(text); }

  UserFamily& into_;
  Family& family_;
  const ordered_json& map_;
  std::string where_;
  std::string prefix_;
  bool has_layers_ = false;
};

UserFamily::UserFamily(const std::string& path) : UserFamily(read_map(path), path) {}

UserFamily::UserFamily(const ordered_json& map, std::string_view where) : map_(map) {
  UserFamilyReader(*this, where).read();
  family_.map_text = keep(map.dump());
}

void UserFamilyReader::read() {
  static const std::set<std::string, std::less<>> kMembers = {
      "family",   "model_type", "architecture", "about",      "structure", "config", "required",
      "harmless", "heads",      "query_groups", "activation", "head_size", "rotary", "windows",
      "tied",     "experts",    "mtp",          "prefix",     "tensors",   "order"};
  if (!map_.is_object() || (!map_.contains("family") && !map_.contains("model_type"))) {
    refuse(where_,
           R"(expected {"family": "llama", "tensors": {our name: their name, ..}}; msckpt families --explain llama )"
           "prints one to start from");
  }
  for (const auto& item : map_.items()) {
    if (!kMembers.contains(item.key())) refuse(where_, cat("unknown member ", printable(item.key())));
  }
  read_base();
  read_text("model_type", family_.model_type);
  read_text("architecture", family_.architecture);
  read_text("about", family_.about);
  read_structure();
  read_config();
  read_flags();
  read_lists();
  read_rotary();
  read_experts();
  if (map_.contains("tensors")) read_tensors();
}

void UserFamilyReader::read_base() {
  const ordered_json* base = find("family");
  if (base == nullptr) {
    for (const char* needed : {"architecture", "config", "activation", "tensors"}) {
      if (!map_.contains(needed)) refuse(where_, cat("without \"family\" it must have \"", needed, "\""));
    }
    family_.prefix = "";
    return;
  }
  try {
    family_ = find_family(text_of(*base, "family"));
  } catch (const Error& error) {
    throw error.within(where_);
  }
  if (family_.model_type.empty()) refuse(where_, "\"family\" is empty");
}

void UserFamilyReader::read_structure() {
  const ordered_json* structure = find("structure");
  if (structure == nullptr) return;
  into_.structure_.assign(family_.structure.begin(), family_.structure.end());
  for (const auto& item : object_of(*structure, "structure").items()) {
    const ordered_json& value = item.value();
    const std::string at = cat("structure: ", item.key());
    const bool known = visit_field(item.key(), [&]<class T>(T C::*field) {
      if constexpr (std::is_same_v<T, std::string>) {
        into_.structure_.emplace_back(field, keep(typed<std::string>(value, at, "a text")));
      } else {
        const char* expected = std::is_same_v<T, bool> ? "true or false" : "a number";
        into_.structure_.emplace_back(field, typed<T>(value, at, expected));
      }
    });
    if (!known) refuse(where_, cat(printable(at), " is not a model field; mstrain --help lists them"));
  }
  family_.structure = into_.structure_;
}

void UserFamilyReader::read_config() {
  const ordered_json* config = find("config");
  if (config == nullptr) return;
  into_.keys_.assign(family_.keys.begin(), family_.keys.end());
  for (const auto& item : object_of(*config, "config").items()) {
    std::erase_if(into_.keys_, [&](const ConfigKey& key) { return key.hf == item.key(); });
    if (item.value().is_null()) continue;
    if (!item.value().is_array()) {
      read_config_key(item.key(), item.value());
      continue;
    }
    for (const ordered_json& each : item.value()) read_config_key(item.key(), each);
  }
  family_.keys = into_.keys_;
}

void UserFamilyReader::read_config_key(const std::string& key, const ordered_json& value) {
  const std::string at = cat("config: ", key);
  const ordered_json entry = value.is_string() ? ordered_json{{"field", value}} : object_of(value, at);
  ConfigKey made{.hf = keep(key), .field = &C::hidden_size};
  bool has_field = false;
  for (const auto& item : entry.items()) {
    const auto flag = std::find_if(std::begin(kKeyFlags), std::end(kKeyFlags),
                                   [&](const auto& each) { return each.first == item.key(); });
    if (flag != std::end(kKeyFlags)) {
      made.*(flag->second) = typed<bool>(item.value(), at, "true or false");
    } else if (item.key() == "absent") {
      made.absent = item.value().is_boolean() ? (item.value().get<bool>() ? 1.0 : 0.0)
                                              : typed<double>(item.value(), cat(at, ": absent"), "a number or a flag");
    } else if (item.key() == "also") {
      made.also = keep(text_of(item.value(), cat(at, ": also")));
    } else if (item.key() == "field") {
      const std::string field = text_of(item.value(), cat(at, ": field"));
      has_field = visit_field(field, [&]<class T>(T C::*member) {
        if constexpr (std::is_same_v<T, std::string>) {
          refuse(where_, cat(printable(at), ": ", printable(field), " is a string field; set it in \"structure\""));
        } else {
          made.field = member;
        }
      });
      if (!has_field) {
        refuse(where_, cat(printable(at), ": ", printable(field), " is not a model field; mstrain --help lists them"));
      }
    } else {
      refuse(where_, cat(printable(at), ": unknown member ", printable(item.key())));
    }
  }
  if (!has_field) refuse(where_, cat(printable(at), ": no \"field\""));
  into_.keys_.push_back(made);
}

void UserFamilyReader::read_flags() {
  if (const ordered_json* required = find("required")) {
    into_.required_.assign(family_.required.begin(), family_.required.end());
    for (const auto& item : object_of(*required, "required").items()) {
      std::erase_if(into_.required_, [&](const RequiredFlag& flag) { return flag.hf == item.key(); });
      if (item.value().is_null()) continue;
      const bool value = typed<bool>(item.value(), cat("required: ", item.key()), "true, false or null");
      into_.required_.push_back({keep(item.key()), value});
    }
    family_.required = into_.required_;
  }
  read_text("heads", family_.heads_key);
  if (const ordered_json* groups = find("query_groups")) {
    family_.groups_key = groups->is_null() ? "" : keep(text_of(*groups, "query_groups"));
  }
  if (const ordered_json* size = find("head_size")) {
    family_.default_head_dim = typed<int64_t>(*size, "head_size", "a number");
  }
  if (const ordered_json* tied = find("tied")) family_.default_tied = typed<bool>(*tied, "tied", "true or false");
}

void UserFamilyReader::read_lists() {
  const auto texts = [&](const ordered_json& list, std::string_view key, std::vector<std::string_view>& into) {
    if (!list.is_array()) refuse(where_, cat(printable(key), ": expected a list of keys"));
    for (const ordered_json& item : list) into.push_back(keep(text_of(item, key)));
  };
  if (const ordered_json* harmless = find("harmless")) {
    into_.harmless_.assign(family_.harmless.begin(), family_.harmless.end());
    texts(*harmless, "harmless", into_.harmless_);
    family_.harmless = into_.harmless_;
  }
  const ordered_json* activation = find("activation");
  if (activation == nullptr) return;
  for (const auto& item : object_of(*activation, "activation").items()) {
    if (item.key() == "keys") {
      texts(item.value(), "activation: keys", into_.activation_keys_);
    } else if (item.key() == "absent") {
      family_.activation = keep(text_of(item.value(), "activation: absent"));
    } else {
      refuse(where_, cat("activation: unknown member ", printable(item.key())));
    }
  }
  if (!into_.activation_keys_.empty()) family_.activation_keys = into_.activation_keys_;
  if (family_.activation_keys.empty()) refuse(where_, "activation: no \"keys\"");
}

void UserFamilyReader::read_rotary() {
  if (const ordered_json* rotary = find("rotary")) {
    for (const auto& item : object_of(*rotary, "rotary").items()) {
      const std::string at = cat("rotary: ", item.key());
      const ordered_json& value = item.value();
      if (item.key() == "base") {
        family_.rotary_base_key = keep(text_of(value, at));
      } else if (item.key() == "absent_base") {
        family_.default_rotary_base = typed<double>(value, at, "a number");
      } else if (item.key() == "share") {
        family_.partial_rotary_key = keep(text_of(value, at));
      } else if (item.key() == "absent_share") {
        family_.default_partial_rotary = typed<double>(value, at, "a number");
      } else if (item.key() == "absent_original_length") {
        family_.default_original_positions = typed<int64_t>(value, at, "a number");
      } else if (item.key() == "layers") {
        family_.rope_layers_key = keep(text_of(value, at));
      } else if (item.key() == "absent_local_base") {
        family_.default_rotary_base_local = typed<double>(value, at, "a number");
      } else {
        refuse(where_, cat("unknown member ", printable(at)));
      }
    }
  }
  const ordered_json* windows = find("windows");
  if (windows == nullptr) return;
  const ordered_json& object = object_of(*windows, "windows");
  if (object.size() != 2 || !object.contains("key") || !object.contains("absent")) {
    refuse(where_, R"(windows: expected {"key": "sliding_window_pattern", "absent": 6})");
  }
  family_.window_pattern_key = keep(text_of(object["key"], "windows: key"));
  family_.default_window_pattern = typed<int64_t>(object["absent"], "windows: absent", "a number");
}

void UserFamilyReader::read_experts() {
  const ordered_json* experts = find("experts");
  if (experts == nullptr) return;
  for (const auto& item : object_of(*experts, "experts").items()) {
    const std::string text = text_of(item.value(), cat("experts: ", item.key()));
    if (item.key() == "shared") {
      family_.shared_experts_key = keep(text);
      continue;
    }
    const auto layers = std::find_if(std::begin(kExpertLayersNames), std::end(kExpertLayersNames),
                                     [&](const auto& each) { return each.first == text; });
    if (item.key() != "layers" || layers == std::end(kExpertLayersNames)) {
      refuse(where_, cat("experts: ", printable(item.key()), " is ", printable(text),
                         "; expected layers: all, after_first or sparse_step, and shared: a key"));
    }
    family_.expert_layers = layers->second;
  }
}

void UserFamilyReader::read_tensors() {
  if (const ordered_json* prefix = find("prefix")) prefix_ = text_of(*prefix, "prefix");
  family_.prefix = keep(prefix_);
  family_.mtp_key = "";
  family_.mtp_before = family_.mtp_after = {};
  std::string unknown;
  for (const auto& item : object_of(map_["tensors"], "tensors").items()) {
    if (!canonical_names().contains(item.key())) unknown += cat(unknown.empty() ? "" : ", ", printable(item.key()));
  }
  if (!unknown.empty()) {
    refuse(where_, cat(unknown,
                       ": no parameter has this name; use our names, as in msckpt families --explain llama "
                       "and msckpt inspect --tensors"));
  }
  for (const auto& item : map_["tensors"].items()) add_tensor(item.key(), item.value());
  check_parts();
  if (map_.contains("mtp")) read_mtp();
  if (const ordered_json* order = find("order")) sort_rules(*order);
  if (std::none_of(into_.before_.begin(), into_.before_.end(),
                   [](const NameRule& rule) { return rule.canonical == kWordEmbeddings; }) &&
      std::none_of(into_.after_.begin(), into_.after_.end(),
                   [](const NameRule& rule) { return rule.canonical == kWordEmbeddings; })) {
    refuse(where_, cat("tensors: no name for ", kWordEmbeddings));
  }
  family_.before = into_.before_;
  family_.layer = into_.layer_;
  family_.after = into_.after_;
  family_.mtp_before = into_.mtp_before_;
  family_.mtp_after = into_.mtp_after_;
}

void UserFamilyReader::add_tensor(const std::string& key, const ordered_json& names) {
  const std::string at = cat("tensors: ", key);
  if (names.is_string()) return add_tensor(key, {{"whole", names}});
  object_of(names, at);
  const bool transposed = names.contains("transposed") && typed<bool>(names["transposed"], at, "true or false");
  const std::string also = names.contains("also") ? text_of(names["also"], cat(at, ": also")) : "";
  for (const auto& item : names.items()) {
    if (item.key() == "transposed" || item.key() == "also") continue;
    if (item.key() == kQkvGrouped && is_qkv(key)) {
      add_part(key, Part::kWhole, text_of(item.value(), at), transposed, also);
      continue;
    }
    const auto part = std::find_if(std::begin(kPartNames), std::end(kPartNames),
                                   [&](const auto& each) { return each.first == item.key(); });
    if (part == std::end(kPartNames)) {
      refuse(where_, cat(printable(at), ": ", printable(item.key()),
                         ": expected whole, query, key, value, qkv, qkv_grouped, gate or up and a name, or "
                         "transposed or also"));
    }
    if (part->second == Part::kWhole && is_qkv(key)) {
      refuse(where_, cat(printable(at),
                         ": state how q, k and v are packed: \"qkv\", all of q, then k, then v, or "
                         "\"qkv_grouped\", for each query group its q heads, its k, its v"));
    }
    add_part(key, part->second, text_of(item.value(), at), transposed, also);
  }
}

// Returns what follows "layers.{layer}."; what precedes {layer} must be the same in all names.
std::string UserFamilyReader::name_in_layer(const std::string& name, const std::string& key) {
  const size_t at = name.find(kLayer);
  if (at == std::string::npos)
    refuse(where_, cat(printable(key), ": ", printable(name), " has no {layer} followed by a dot"));
  std::string before = name.substr(0, at);
  if (before.starts_with(prefix_)) before.erase(0, prefix_.size());
  if (has_layers_ && before != family_.layers) {
    refuse(where_, cat(printable(key), ": ", printable(name), " has ", printable(before), " before {layer}, others ",
                       printable(family_.layers)));
  }
  family_.layers = keep(before);
  has_layers_ = true;
  return name.substr(at + kLayer.size());
}

void UserFamilyReader::add_part(const std::string& key, Part part, const std::string& name, bool transposed,
                                const std::string& also) {
  const std::string at = cat("tensors: ", key);
  const bool in_layer = key.starts_with(kLayersPlaceholder);
  const bool of_expert = key.find(kExpertPlaceholder) != std::string::npos;
  if (name.empty()) refuse(where_, cat(printable(at), ": an empty name"));
  if (of_expert != (name.find(kExpertPlaceholder) != std::string::npos)) {
    refuse(where_, cat(printable(at), ": ", printable(name),
                       of_expert ? " has no {expert}" : " has {expert}, but belongs to no expert"));
  }
  if (!in_layer && name.find(kLayerPlaceholder) != std::string::npos) {
    refuse(where_, cat(printable(at), ": ", printable(name), " has {layer}, but belongs to no layer"));
  }
  NameRule rule{.part = part, .transposed = transposed};
  rule.canonical = keep(in_layer ? key.substr(kLayersPlaceholder.size()) : key);
  const auto bare = [&](const std::string& full) {
    if (in_layer) return name_in_layer(full, at);
    const bool cuts = rule.canonical != kOutputLayer && full.starts_with(prefix_);
    return cuts ? full.substr(prefix_.size()) : full;
  };
  rule.hf = keep(bare(name));
  if (!also.empty()) rule.also = keep(bare(also));
  auto& rules = in_layer ? into_.layer_ : into_.layer_.empty() ? into_.before_ : into_.after_;
  rules.push_back(rule);
}

void UserFamilyReader::check_parts() const {
  std::string wrong;
  const auto check = [&](const std::vector<NameRule>& rules, std::string_view prefix) {
    std::map<std::string_view, std::multiset<Part>> parts;
    for (const NameRule& rule : rules) parts[rule.canonical].insert(rule.part);
    for (const auto& [name, found] : parts) {
      if (!is_whole(found, name)) wrong += cat(wrong.empty() ? "" : ", ", prefix, name);
    }
  };
  check(into_.before_, "");
  check(into_.layer_, kLayersPlaceholder);
  check(into_.after_, "");
  if (!wrong.empty()) refuse(where_, cat("tensors: missing parts, or parts that exclude each other, of ", wrong));
}

void UserFamilyReader::read_mtp() {
  const ordered_json& mtp = object_of(map_["mtp"], "mtp");
  for (const auto& item : mtp.items()) {
    if (item.key() == "key") {
      family_.mtp_key = keep(text_of(item.value(), "mtp: key"));
      continue;
    }
    if (item.key() != "before" && item.key() != "after")
      refuse(where_, cat("mtp: unknown member ", printable(item.key())));
    auto& rules = item.key() == "before" ? into_.mtp_before_ : into_.mtp_after_;
    for (const auto& tensor : object_of(item.value(), cat("mtp: ", item.key())).items()) {
      const std::string at = cat("mtp: ", tensor.key());
      NameRule rule{.canonical = keep(tensor.key())};
      const bool is_copy = tensor.value().is_object();
      if (is_copy && (tensor.value().size() != 1 || !tensor.value().contains("copy"))) {
        refuse(where_, cat(printable(at), ": expected a name, or {\"copy\": name}"));
      }
      rule.is_copy = is_copy;
      rule.hf = keep(name_in_layer(text_of(is_copy ? tensor.value()["copy"] : tensor.value(), at), at));
      const bool known = is_copy ? rule.canonical == kWordEmbeddings || rule.canonical == kOutputLayer
                                 : canonical_names().contains(cat("mtp.layers.{layer}.", tensor.key()));
      if (!known) refuse(where_, cat(printable(at), ": no such parameter"));
      rules.push_back(rule);
    }
  }
}

void UserFamilyReader::sort_rules(const ordered_json& order) {
  std::map<std::string, size_t, std::less<>> place;
  if (!order.is_array()) refuse(where_, "order: expected a list of names");
  for (const ordered_json& name : order) place.emplace(text_of(name, "order"), place.size());
  const std::string layers = cat(prefix_, family_.layers, kLayer);
  const auto place_of = [&](const NameRule& rule, const std::string& before) {
    const std::string name = rule.canonical == kOutputLayer ? std::string(rule.hf) : cat(before, rule.hf);
    const auto found = place.find(name);
    if (found == place.end()) refuse(where_, cat("order: lacks ", printable(name)));
    return found->second;
  };
  std::vector<NameRule> outside = into_.before_;
  outside.insert(outside.end(), into_.after_.begin(), into_.after_.end());
  const auto sort = [&](std::vector<NameRule>& rules, const std::string& before) {
    std::stable_sort(rules.begin(), rules.end(),
                     [&](const NameRule& a, const NameRule& b) { return place_of(a, before) < place_of(b, before); });
  };
  sort(into_.layer_, layers);
  if (into_.layer_.empty()) return sort(into_.before_, prefix_);
  const size_t first_in_layers = place_of(into_.layer_.front(), layers);
  into_.before_.clear();
  into_.after_.clear();
  for (const NameRule& rule : outside) {
    (place_of(rule, prefix_) < first_in_layers ? into_.before_ : into_.after_).push_back(rule);
  }
  sort(into_.before_, prefix_);
  sort(into_.after_, prefix_);
}

}  // namespace ms::convert
