// MindSpore's parallel modes, of which stand_alone and data_parallel are there. Source:
// mindspore.set_auto_parallel_context.
#pragma once

#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct ParallelModeConfig {
  std::string parallel_mode;
  bool gradients_mean = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = ParallelModeConfig;
    field("parallel_mode", &C::parallel_mode,
          "MindSpore's mode: stand_alone (one rank) or data_parallel; empty: from the parallel sizes");
    field("gradients_mean", &C::gradients_mean,
          "With --parallel-mode data_parallel: average gradients over the replicas; off: add them, as MindSpore "
          "does by default");
  }
};

Feature parallel_mode_feature();

}  // namespace ms::train
