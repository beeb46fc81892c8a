// The step table (traces.md 10.8, columns of 5.4): what users of the Ascend cluster tool read, for every kind of trace.
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
// The columns in the vendor's order, by the vendor's names and by ours in JSON (with _us).
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

// One row for each step of a rank, in time order. With C the computing and N the communication time of the step's
// device events (device.h), START the first start among them and END the later of the last end and the annotation's:
//   computing |C|, communication |N|, overlapped |C n N|, communication_not_overlapped |N \ C|,
//   free = END - START - |C u N|, bubble = sum of receives, stage = END - START - bubble, preparing = START -
//   annotation
std::vector<StepRow> step_rows(const RankTrace& trace, const DeviceView& view);

// Where a rank stands in the layout, as far as its communication tells: positions in the groups named tp, pp and dp
// (0 in a group that never communicated).
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
// For each step: (max - min) / mean over ranks; a share above 0.05 names a slow rank. -1: mean is 0.
struct StepSpread {
  int64_t step = 0;
  double computing = -1, communication_not_overlapped = -1, free = -1;
};
struct ClusterSteps {
  std::vector<StageRow> stages;
  std::vector<StepSpread> spread;  // with two ranks or more
};
struct RankSteps {
  int rank = 0;
  LayoutIndex layout;
  std::vector<StepRow> rows;
};
ClusterSteps cluster_steps(const std::vector<RankSteps>& ranks);

}  // namespace ms::profile
