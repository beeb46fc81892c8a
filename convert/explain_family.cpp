// Formats a family as the JSON that user_family.h describes.
#include <algorithm>

#include "convert/detail/family_words.h"
#include "convert/user_family.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using nlohmann::ordered_json;
using C = core::TransformerConfig;

ordered_json number_of_type(const ConfigKey& key, double value) {
  if (std::holds_alternative<bool C::*>(key.field)) return value != 0;
  if (std::holds_alternative<int64_t C::*>(key.field)) return static_cast<int64_t>(value);
  return value;
}

ordered_json explain_key(const ConfigKey& key) {
  const std::string field = std::visit([](auto member) { return std::string(field_name(member)); }, key.field);
  ordered_json out = {{"field", field}};
  if (key.absent) out["absent"] = number_of_type(key, *key.absent);
  if (!key.also.empty()) out["also"] = key.also;
  for (const auto& [name, flag] : kKeyFlags) {
    if (key.*flag) out[std::string(name)] = true;
  }
  return out.size() == 1 ? ordered_json(field) : out;
}

// Groups the rules of a parameter at the place of its first rule; the names in the order of the rules go to `order`.
class TensorExplainer {
 public:
  ordered_json tensors = ordered_json::object();
  std::vector<std::string> order;

  void add(std::span<const NameRule> rules, std::string_view hf_prefix, std::string_view canonical_prefix) {
    for (const NameRule& rule : rules) {
      const std::string name =
          rule.canonical == kOutputLayer && !rule.is_copy ? std::string(rule.hf) : cat(hf_prefix, rule.hf);
      order.push_back(name);
      ordered_json& names = tensors[rule.is_copy ? std::string(rule.canonical) : cat(canonical_prefix, rule.canonical)];
      std::string_view part = part_name(rule.part);
      if (rule.part == Part::kWhole && is_qkv(rule.canonical)) part = kQkvGrouped;
      names[rule.is_copy ? "copy" : std::string(part)] = name;
      if (rule.transposed) names["transposed"] = true;
      if (!rule.also.empty()) {
        names["also"] = rule.canonical == kOutputLayer ? std::string(rule.also) : cat(hf_prefix, rule.also);
      }
    }
  }

  // Shortens {"whole": name} to the name. Returns whether the order of the JSON differs from that of the rules.
  bool finish() {
    std::vector<std::string> as_json;
    for (auto& item : tensors.items()) {
      ordered_json& names = item.value();
      for (const auto& part : names.items()) {
        if (part.key() != "transposed" && part.key() != "also") as_json.push_back(part.value().get<std::string>());
      }
      if (names.size() == 1 && names.contains("whole")) names = ordered_json(names["whole"]);
    }
    return as_json != order;
  }
};

ordered_json explain_mtp(const Family& family) {
  ordered_json mtp = {{"key", family.mtp_key}};
  const std::string prefix = cat(family.prefix, family.layers, kLayerPlaceholder, ".");
  for (const auto& [name, rules] : {std::pair{"before", family.mtp_before}, std::pair{"after", family.mtp_after}}) {
    TensorExplainer explainer;
    explainer.add(rules, prefix, "");
    explainer.finish();
    mtp[name] = explainer.tensors;
  }
  return mtp;
}

ordered_json explain_rotary(const Family& family) {
  ordered_json rotary = {{"base", family.rotary_base_key},
                         {"absent_base", family.default_rotary_base},
                         {"share", family.partial_rotary_key}};
  if (family.default_partial_rotary) rotary["absent_share"] = *family.default_partial_rotary;
  if (!family.rope_layers_key.empty()) rotary["layers"] = family.rope_layers_key;
  if (family.default_original_positions > 0) rotary["absent_original_length"] = family.default_original_positions;
  if (family.default_rotary_base_local > 0) rotary["absent_local_base"] = family.default_rotary_base_local;
  return rotary;
}

}  // namespace

ordered_json explain_family(const Family& family) {
  ordered_json out = {{"model_type", family.model_type}, {"architecture", family.architecture}};
  if (!family.about.empty()) out["about"] = family.about;
  ordered_json& structure = out["structure"] = ordered_json::object();
  for (const FixedField& fixed : family.structure) {
    std::visit([&](const auto& to) { structure[std::string(field_name(to.field))] = to.value; }, fixed.to);
  }
  ordered_json& config = out["config"] = ordered_json::object();
  for (const ConfigKey& key : family.keys) {
    ordered_json& entry = config[std::string(key.hf)];
    const ordered_json explained = explain_key(key);
    if (entry.is_null()) {
      entry = explained;
    } else {  // one key that sets several fields
      if (!entry.is_array()) entry = ordered_json::array({entry});
      entry.push_back(explained);
    }
  }
  if (!family.required.empty()) {
    for (const RequiredFlag& flag : family.required) out["required"][std::string(flag.hf)] = flag.value;
  }
  if (!family.harmless.empty()) out["harmless"] = family.harmless;
  out["heads"] = family.heads_key;
  out["query_groups"] = family.groups_key.empty() ? ordered_json() : ordered_json(family.groups_key);
  out["activation"] = {{"keys", family.activation_keys}, {"absent", family.activation}};
  out["head_size"] = family.default_head_dim;
  out["rotary"] = explain_rotary(family);
  if (!family.window_pattern_key.empty()) {
    out["windows"] = {{"key", family.window_pattern_key}, {"absent", family.default_window_pattern}};
  }
  out["tied"] = family.default_tied;
  if (family.expert_layers != ExpertLayers::kNone) {
    out["experts"] = {{"layers", expert_layers_name(family.expert_layers)}};
    if (!family.shared_experts_key.empty()) out["experts"]["shared"] = family.shared_experts_key;
  }
  if (!family.mtp_key.empty()) out["mtp"] = explain_mtp(family);
  if (!family.prefix.empty()) out["prefix"] = family.prefix;
  TensorExplainer explainer;
  explainer.add(family.before, family.prefix, "");
  explainer.add(family.layer, cat(family.prefix, family.layers, kLayerPlaceholder, "."), kLayersPlaceholder);
  explainer.add(family.after, family.prefix, "");
  const bool has_order = explainer.finish();
  out["tensors"] = explainer.tensors;
  if (has_order) out["order"] = explainer.order;
  return out;
}

}  // namespace ms::convert
