// Results that do not depend on the number of threads. Source: MindSpeed's --npu-deterministic
// (mindspeed/features_manager/functional/npu_deterministic.py), Megatron's --deterministic-mode.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct DeterministicConfig {
  bool deterministic = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = DeterministicConfig;
    field("deterministic", &C::deterministic,
          "Make results independent of --threads-per-rank; runs of one layout with the same number of threads are "
          "always equal");
  }
};

Feature deterministic_feature();

}  // namespace ms::train
