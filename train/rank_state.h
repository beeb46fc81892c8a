// What all modules of one rank share. Passed by reference, never global.
#pragma once

#include "core/comm/process_groups.h"
#include "train/config.h"
#include "train/ops/context.h"

namespace ms::train {

struct RankState {
  const TrainerConfig& config;  // resolved and validated
  core::ProcessGroups& groups;
  ops::Context& ops;

  int tp_size() const { return groups.grid.tp; }
  int tp_rank() const { return groups.at.tp; }
  ckpt::ModelLayout layout() const { return config.layout(groups.grid.world_size()); }
  bool sequence_parallel() const { return config.parallel.sequence_parallel; }
};

}  // namespace ms::train
