// Where device time goes (traces.md 9.2, 9.3): computing, communication and memory traffic that computing does not
// hide, and idle. busy = computing + exposed communication + exposed memory, and span = busy + idle, always.
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
  std::optional<Breakdown> devices;  // none: no device event belongs to it
};

// Of all device events; nothing without any.
std::optional<Breakdown> breakdown(const RankTrace& trace, const DeviceView& view);
// Of the device events of each step. Spans of steps may overlap: they are not forced to tile.
std::vector<StepBreakdown> breakdown_per_step(const RankTrace& trace, const DeviceView& view);
int64_t devices_outside_steps(const DeviceView& view);
struct PerStep {
  std::vector<StepBreakdown> rows;
  int64_t devices_outside_steps = 0;
};

// Time during which exactly one set of classes is active, for each set that occurs: "COMPUTATION",
// "COMPUTATION overlapping COMMUNICATION", ... in a fixed order. The times add up to busy.
struct KernelType {
  std::string classes;
  int64_t ns = 0;
};
std::vector<KernelType> kernel_types(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
