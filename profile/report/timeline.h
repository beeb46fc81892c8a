// A picture of lanes over time, whatever the number of events: for each lane and pixel column the covered share and the
// dominant class, and all events of a few chosen steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/analysis/findings.h"

namespace ms::profile {

struct TimelineLane {
  int rank = 0;
  bool device = false;
  std::string name;
  // Columns of equal width: share 0 (nothing) to 9 (all of it), and the class that covers most: 0 computation,
  // 1 communication, 2 memory, 3 host.
  std::vector<uint8_t> share, klass;
};

struct TimelineSlice {
  uint32_t lane = 0;  // index of Timeline::lanes
  int64_t start = 0, dur = 0;
  uint32_t name = 0;  // index of Timeline::names
  uint8_t klass = 0;
};

struct Timeline {
  int64_t start = 0, end = 0;  // common time
  std::vector<TimelineLane> lanes;
  std::vector<TimelineSlice> slices;  // in full detail: of the slowest and the median step of a few ranks
  std::vector<std::string> names;
};

// max_lanes, max_slices: what a page can hold; the lanes with most time are kept.
Timeline make_timeline(const std::vector<RankDevices>& ranks, size_t columns, size_t max_lanes, size_t max_slices);

}  // namespace ms::profile
