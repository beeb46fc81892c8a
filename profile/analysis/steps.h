// The step table: the columns of the Ascend cluster tool, for every kind of trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

// All in ns. computing + communication_not_overlapped + free + preparing = end of the step - start of its annotation.
struct StepTimes {
  int64_t computing = 0, communication_not_overlapped = 0, overlapped = 0, communication = 0, free = 0;
  int64_t stage = 0, bubble = 0, communication_not_overlapped_exclude_receive = 0, preparing = 0;
};
inline constexpr int kNumStepTimes = 9;
// The columns in the vendor's order, with the vendor's name and the key in JSON (which adds _us).
struct StepColumn {
  const char* vendor;
  const char* json;
  int64_t StepTimes::*time;
};
extern const StepColumn kStepColumns[kNumStepTimes];

struct StepRow {
  int64_t step = 0;
  int64_t host_ns = 0;  // of the annotation
  StepTimes times;
};

// One row per step of a rank, in time order. With C the computing and N the communication time of the step's device
// events (device.h), START their first start, and END the later of their last end and the annotation's:
//   computing |C|, communication |N|, overlapped |C n N|, communication_not_overlapped |N \ C|,
//   free = END - START - |C u N|, bubble = sum of receives, stage = END - START - bubble,
//   preparing = START - start of the annotation
std::vector<StepRow> step_rows(const RankTrace& trace, const DeviceView& view);

// The rank's position in the layout, derived from its communication: its indices in the groups named tp, pp and dp (0
// in a group that never communicated).
struct LayoutIndex {
  int64_t tp = 0, pp = 0, dp = 0;
};
LayoutIndex layout_index(const RankTrace& trace);

// The ranks of one pipeline stage, and for each step the maximum of every column over them.
struct StageRow {
  int64_t step = 0;
  std::vector<int> ranks;
  StepTimes times;
};
// Per step: (max - min) / mean over ranks; above 0.05 a slow rank is reported. -1: mean is 0.
struct StepSpread {
  int64_t step = 0;
  double computing = -1, communication_not_overlapped = -1, free = -1;
};
struct ClusterSteps {
  std::vector<StageRow> stages;
  std::vector<StepSpread> spread;  // with two or more ranks
};
struct RankSteps {
  int rank = 0;
  LayoutIndex layout;
  std::vector<StepRow> rows;
};
ClusterSteps cluster_steps(const std::vector<RankSteps>& ranks);

}  // namespace ms::profile
