#include "train/features/active_features.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "core/io/json.h"
#include "train/features/registry.h"

namespace ms::train {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

std::vector<ActiveFeature> active_features(const TrainerConfig& config) {
  std::vector<ActiveFeature> active;
  for (const Feature& feature : features()) {
    if (feature.is_active(config))
      active.push_back({feature.name, feature.level, given_flags(feature, config), feature.effect});
  }
  return active;
}

std::string active_features_text(const TrainerConfig& config) {
  const std::vector<ActiveFeature> active = active_features(config);
  size_t name_width = 0, flags_width = 0;
  for (const ActiveFeature& feature : active) {
    name_width = std::max(name_width, feature.name.size());
    flags_width = std::max(flags_width, joined(feature.flags).size());
  }
  std::ostringstream out;
  out << std::left;
  for (const ActiveFeature& feature : active) {
    out << std::setw(static_cast<int>(name_width)) << feature.name << "  level " << feature.level << "  "
        << std::setw(static_cast<int>(flags_width)) << joined(feature.flags) << "  " << feature.effect << '\n';
  }
  out << "not active:";
  for (const Feature& feature : features()) {
    if (!feature.is_active(config)) out << ' ' << feature.name;
  }
  out << '\n';
  return out.str();
}

nlohmann::json features_json(const TrainerConfig& config) {
  nlohmann::json json = nlohmann::json::array();
  for (const Feature& feature : features()) {
    nlohmann::json needs = nlohmann::json::array(), excludes = nlohmann::json::array();
    for (const Rule& rule : feature.rules) (rule.kind == Rule::kNeeds ? needs : excludes).push_back(rule.brief());
    json.push_back({{"name", feature.name},
                    {"level", feature.level},
                    {"active", feature.is_active(config)},
                    {"effect", feature.effect},
                    {"flags", flags_of(feature)},
                    {"given", given_flags(feature, config)},
                    {"needs", std::move(needs)},
                    {"excludes", std::move(excludes)}});
  }
  return json;
}

}  // namespace ms::train
