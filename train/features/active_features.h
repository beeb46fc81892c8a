// The features of a configuration, as --print-active-features and the plan show them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/config.h"

namespace ms::train {

struct ActiveFeature {
  std::string name;
  int level = 0;
  std::vector<std::string> flags;  // "--bf16", as given_flags() says
  std::string effect;
};

// In the order of features(). After resolve_and_validate.
std::vector<ActiveFeature> active_features(const TrainerConfig& config);

// One line for each active feature, then the names of the others.
std::string active_features_text(const TrainerConfig& config);
// [{"name", "level", "active", "effect", "flags": [..], "given": [..], "needs": [..], "excludes": [..]}] of every
// feature. flags: all that it owns; given: as in ActiveFeature.
nlohmann::json features_json(const TrainerConfig& config);

}  // namespace ms::train
