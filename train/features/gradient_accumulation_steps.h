// The number of micro-batches in a step, stated: DeepSpeed's gradient_accumulation_steps. Here it follows from the
// batch sizes and the ranks, so that a file written for other ranks is found out at the start. Source:
// deepspeed/runtime/config.py (_batch_assertion).
#pragma once

#include <cstdint>
#include <optional>

#include "train/features/feature.h"

namespace ms::train {

struct GradientAccumulationStepsConfig {
  std::optional<int64_t> gradient_accumulation_steps;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("gradient_accumulation_steps", &GradientAccumulationStepsConfig::gradient_accumulation_steps,
          "Micro-batches of each rank in a step, which follow from --global-batch-size, --micro-batch-size and the "
          "data-parallel size: an error if they are others. Default: whatever follows");
  }
};

Feature gradient_accumulation_steps_feature();

}  // namespace ms::train
