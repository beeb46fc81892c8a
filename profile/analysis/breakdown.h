// Splits device time into computing, exposed communication and memory traffic (not hidden by computing), and idle time.
// busy = computing + exposed communication + exposed memory, and span = busy + idle, always.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

struct Breakdown {  // all in ns
  int64_t span = 0, computing = 0, exposed_communication = 0, exposed_memory = 0, busy = 0, idle = 0;
  int64_t communication = 0, memory = 0, overlap = 0;  // overlap: of communication with computing
  int64_t events = 0;
};

struct StepBreakdown {
  Step step;
  std::optional<Breakdown> devices;  // nullopt: the step has no device events
};

// Over all device events; nullopt if there are none.
std::optional<Breakdown> breakdown(const RankTrace& trace, const DeviceView& view);
// Over the device events of each step. Spans of steps may overlap: they need not tile the time.
std::vector<StepBreakdown> breakdown_per_step(const RankTrace& trace, const DeviceView& view);
int64_t devices_outside_steps(const DeviceView& view);
struct PerStep {
  std::vector<StepBreakdown> rows;
  int64_t devices_outside_steps = 0;
};

// Time during which exactly this set of classes is active, for each set that occurs: "COMPUTATION", "COMPUTATION
// overlapping COMMUNICATION", ... in a fixed order. The times add up to busy.
struct KernelType {
  std::string classes;
  int64_t ns = 0;
};
std::vector<KernelType> kernel_types(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
