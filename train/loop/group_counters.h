// Operations and bytes of a step in the groups of training, as their communicators count them.
#pragma once

#include <array>

#include "core/comm/communicator.h"
#include "core/layout/process_group_table.h"
#include "core/trace/recorder.h"
#include "train/parallel/process_groups.h"

namespace ms::train {

// Of one rank, by group and operation; without evaluations and saves.
using GroupCounters = std::array<std::array<core::CommCounter, core::kNumCommOps>, layout::kNumTrainingGroups>;

void reset_counters(ProcessGroups& groups);
// Since the last reset.
GroupCounters read_counters(ProcessGroups& groups);
// Records the operations and the ring bytes of each group that has any ("tp calls", "tp bytes"), from
// --profile-level level1 on.
void record_counters(const GroupCounters& counters, core::trace::Recorder& recorder);

}  // namespace ms::train
