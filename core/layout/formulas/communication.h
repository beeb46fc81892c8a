// Calls and bytes of a training step: what one rank does in each group, by operation. Evaluations, saves, logging and
// everything in the control groups come on top.
//
// Tensor parallelism: Megatron's mappings.py, with sequence parallelism Korthikanti et al. 2022, section 4.2.2.
// Pipeline: a hidden state forward and its gradient back between neighbouring places. Data parallelism: all-reduce of
// the fp32 gradients, with ZeRO-1 their reduce-scatter and an all-gather of the weights; with ZeRO-2 a reduce-scatter
// of each unit whenever an action has added to its gradients, with ZeRO-3 an all-gather of each that is read
// (unit_uses.h).
#pragma once

#include <cstdint>
#include <vector>

#include "core/comm/comm_op.h"
#include "core/layout/process_group_table.h"
#include "core/layout/training_step.h"

namespace ms::layout {

struct Traffic {
  Group group;
  core::CommOp op;
  int64_t calls = 0;
  int64_t payload_bytes = 0;  // full buffers of the calls
  int64_t ring_bytes = 0;     // core/comm/comm_op.h
  int64_t remote_bytes = 0;   // sent to ranks of other nodes, each part to the rank that reads it
  bool operator==(const Traffic&) const = default;
};

// In order of group and operation, those without calls left out. For a step that is applied (not skipped).
// ranks_per_node: as a launcher fills nodes one after the other; 0: all ranks are on one.
std::vector<Traffic> step_traffic(const TrainingStep& step, int rank, int ranks_per_node = 0);

}  // namespace ms::layout
