// Two stages of two tensor-parallel ranks that run DualPipeV, whose pairs are interleaved.
#pragma once

#include "tests/train/loop/pipeline_rank.h"

namespace ms::train {

inline constexpr int kStages = 2, kRanks = 4;
inline constexpr int64_t kLayers = 8, kMicrobatches = 6;

inline TrainerConfig pipeline_config(const test::TemporaryFolder& folder, bool sequence_parallel, bool detached) {
  TrainerConfig config = test::tiny_config(
      folder.path(), {2, kStages, 1, false, sequence_parallel, 1, detached ? "dualpipev detached" : "dualpipev"});
  config.model.num_layers = kLayers;
  config.training.global_batch_size = kMicrobatches;
  return config;
}

}  // namespace ms::train
