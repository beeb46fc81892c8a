// Which optimizations a run may use at all.
// Source: MindSpeed's --optimization-level (mindspeed/features_manager), where a flag above the level has no effect;
// here it is an error.
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct OptimizationLevelConfig {
  int64_t optimization_level = 2;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("optimization_level", &OptimizationLevelConfig::optimization_level,
          "0: plain operators and parallelism; 1: with fused operators; 2: with all that saves memory or time. For "
          "comparisons when a result is in doubt");
  }
};

Feature optimization_level_feature();

}  // namespace ms::train
