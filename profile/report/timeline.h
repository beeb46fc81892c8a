// Events of a few ranks for the timeline of the HTML report: lanes of nested slices, and flows from launches to
// kernels.
//
// The number of slices is limited. If a rank has more, the slowest and the median step come first, device events before
// host events, and longer events before shorter ones. A lane with dropped slices carries the covered share of each
// column of the time axis, so that busy time does not look idle.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "profile/analysis/clock_alignment.h"

namespace ms::profile {

struct TimelineSlice {
  int64_t start = 0, dur = 0;  // ns, start since Timeline::start
  uint32_t name = 0;           // index of Timeline::names
  uint16_t depth = 0;          // slices of one depth do not overlap
};

struct TimelineLane {
  std::string name;
  bool device = false;
  bool whole = true;                  // `slices` has every event of the lane
  int depth = 0;                      // rows
  std::vector<TimelineSlice> slices;  // by start, longer ones first
  // Unless whole: covered share of each of the equal columns of the time axis, 0 (none) to 9 (all).
  std::vector<uint8_t> share;
};

// Indices of slices of the rank, counted lane by lane.
struct TimelineFlow {
  uint32_t launch = 0, device = 0;
};

struct TimelineRank {
  int rank = 0;
  std::vector<TimelineLane> lanes;  // devices first, then threads, each by their time
  std::vector<TimelineFlow> flows;  // by device slice
  int64_t events = 0;               // of the trace that have a lane
  int64_t slices = 0;               // in `lanes`
};

struct TimelineName {
  std::string text;   // shortened
  std::string whole;  // empty if `text` is the whole name
  uint8_t klass = 0;  // 0 computation, 1 communication, 2 memory, 3 host
};

struct Timeline {
  int64_t start = 0, end = 0;  // common time
  std::vector<TimelineRank> ranks;
  std::vector<TimelineName> names;
};

struct TimelineLimits {
  size_t slices = 120'000;  // of all ranks together
  size_t name_bytes = 600'000;
  size_t lanes = 640;
  size_t columns = 600;
  int depth = 64;  // of one lane; deeper slices are left out
};

struct TimelineInput {
  const RankTrace* trace = nullptr;
  const DeviceView* view = nullptr;
  RankClock clock;  // to the time that all ranks share
};

// ranks: in drawing order.
Timeline make_timeline(const std::vector<TimelineInput>& ranks, const TimelineLimits& limits = {});

}  // namespace ms::profile
