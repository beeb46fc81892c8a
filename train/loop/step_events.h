// Writes the numbers of a step to TensorBoard, under the tags and flags of Megatron's training_log
// (megatron/training/training.py).
#pragma once

#include <cstdint>

#include "train/config.h"
#include "train/loop/metrics.h"
#include "train/loop/tensorboard.h"

namespace ms::train {

// What StepMetrics does not know of the run.
struct RunFacts {
  int world_size = 1;
  int64_t skipped_train_samples = 0;
  int64_t allocated_bytes = 0;  // now, of this rank
};

// Does nothing where `events` is inactive. Loss and gradient norm are left out where they are not finite. Throws kIo.
void write_step_events(EventWriter& events, const TrainerConfig& config, const StepMetrics& step, const RunFacts& run);

}  // namespace ms::train
