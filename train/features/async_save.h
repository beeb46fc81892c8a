// Checkpoints written in the background from a copy of the state. Source: megatron/core/dist_checkpointing/strategies,
// CheckFreq (FAST 2021).
#pragma once

#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct AsyncSaveConfig {
  bool async_save = true;
  int ckpt_staging_buffers = 1;
  bool ckpt_lazy_snapshot = false;
  std::string ckpt_overlap = "wait";

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = AsyncSaveConfig;
    field("async_save", &C::async_save,
          "Write checkpoints in the background, so that a step waits only for a copy; off: within the step");
    field("ckpt_staging_buffers", &C::ckpt_staging_buffers,
          "Snapshots in memory: 1, or 2, so that a save need not wait for the previous one");
    field("ckpt_lazy_snapshot", &C::ckpt_lazy_snapshot,
          "Copy the snapshot during the next forward and backward; only the update waits for it");
    field("ckpt_overlap", &C::ckpt_overlap,
          "A save that is due while the previous one is unfinished: wait for it, or skip");
  }
};

Feature async_save_feature();

}  // namespace ms::train
