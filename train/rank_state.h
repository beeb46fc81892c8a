// What all modules of one rank share. Passed by reference, never global.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/layout/model_layout.h"
#include "train/config.h"
#include "train/ops/context.h"
#include "train/parallel/process_groups.h"

namespace ms::train {

class RoutingStatistics;
class TensorRecorder;

struct RankState {
  const TrainerConfig& config;  // resolved and validated
  ProcessGroups& groups;
  ops::Context& ops;
  TensorRecorder* tensors = nullptr;     // not owned; null: the run records none
  RoutingStatistics* routing = nullptr;  // of layers with experts; not owned; null: nobody wants them
  // Of each layer with experts (global index) the slot of each (core/layout/expert_packing.h), where they move; not
  // owned; null: expert e is in slot e.
  const std::map<int64_t, std::vector<int32_t>>* expert_slots = nullptr;

  int tp_size() const { return groups.grid.tp; }
  int tp_rank() const { return groups.at.tp; }
  layout::ModelLayout layout() const { return config.layout(groups.grid.world_size()); }
  // By how many replicas the collectives divide the gradients that they add up (--ddp-average-in-collective); 1: the
  // loss has divided them.
  int replicas_averaged() const { return config.parallel.ddp_average_in_collective ? groups.dp_cp.size() : 1; }
  bool sequence_parallel() const { return config.parallel.sequence_parallel; }
};

}  // namespace ms::train
