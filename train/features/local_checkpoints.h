// Each rank's newest state on a disk or in the memory of its node. Source: Megatron's --non-persistent-ckpt-type local
// (megatron/training/checkpointing.py, NVIDIA Resiliency Extension).
#pragma once

#include <cstdint>
#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct LocalCheckpointsConfig {
  int64_t non_persistent_save_interval = 0;
  std::string non_persistent_ckpt_type;
  std::string non_persistent_local_ckpt_dir;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = LocalCheckpointsConfig;
    field("non_persistent_save_interval", &C::non_persistent_save_interval,
          "Steps between local checkpoints (--non-persistent-ckpt-type); 0: none");
    field("non_persistent_ckpt_type", &C::non_persistent_ckpt_type,
          "local: each rank also keeps its newest state in a folder of its node, to lose less work when a job is "
          "killed; empty: off");
    field("non_persistent_local_ckpt_dir", &C::non_persistent_local_ckpt_dir,
          "Folder of the local checkpoints on every node: a fast disk, or memory such as /dev/shm");
  }
};

Feature local_checkpoints_feature();

}  // namespace ms::train
