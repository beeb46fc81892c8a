#include "train/features/feature.h"

#include <algorithm>
#include <utility>

#include "core/io/json.h"
#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

std::string Rule::brief() const {
  return kind == kNeeds ? core::cat(flag, " needs ", other) : core::cat(flag, " and ", other, " exclude each other");
}

std::string Rule::text() const {
  return kind == kNeeds || why.empty() ? brief() + why : core::cat(flag, " excludes ", other, why);
}

Rule needs(std::string flag, Condition given, std::string other, Condition holds, std::string why) {
  return {std::move(flag), given, Rule::kNeeds, std::move(other), holds, std::move(why)};
}

Rule excludes(std::string flag, Condition given, std::string other, Condition holds, std::string why) {
  return {std::move(flag), given, Rule::kExcludes, std::move(other), holds, std::move(why)};
}

void check_feature(const Feature& feature, const TrainerConfig& config, int world_size) {
  for (const Rule& rule : feature.rules)
    require(!rule.given(config) || rule.holds(config) == (rule.kind == Rule::kNeeds), rule.text());
  if (feature.check != nullptr) feature.check(config, world_size);
}

std::string describe(const Feature& feature) {
  std::string text = core::cat(feature.effect, " (level ", feature.level, ").");
  for (const Rule& rule : feature.rules) text += core::cat(" ", rule.brief(), ".");
  return text;
}

std::vector<std::string> flags_of(const Feature& feature) {
  TrainerConfig config;
  core::ConfigFields fields;
  feature.add_flags(fields, config);
  std::vector<std::string> flags;
  for (const core::ConfigFields::FlagHelp& flag : fields.flag_help()) flags.push_back(flag.names.front());
  return flags;
}

std::vector<std::string> given_flags(const Feature& feature, const TrainerConfig& config) {
  const auto values = [&](TrainerConfig of) {
    core::ConfigFields fields;
    feature.add_flags(fields, of);
    return fields.dump();
  };
  const nlohmann::json now = values(config), defaults = values({});
  std::vector<std::string> flags, on_by_default;
  for (const auto& [group, fields] : now.items()) {
    for (const auto& [name, value] : fields.items()) {
      const bool on = value.is_boolean() && value.get<bool>(), is_default = value == defaults[group][name];
      if (is_default && !on) continue;
      std::string flag = name;
      std::replace(flag.begin(), flag.end(), '_', '-');
      std::string text = core::cat(value.is_boolean() && !on ? "--no-" : "--", flag);
      if (!value.is_boolean()) {
        for (const nlohmann::json& one : value.is_array() ? value : nlohmann::json::array({value}))
          text += core::cat(" ", one.is_string() ? one.get<std::string>() : one.dump());
      }
      (is_default ? on_by_default : flags).push_back(std::move(text));
    }
  }
  return flags.empty() ? on_by_default : flags;
}

}  // namespace ms::train
