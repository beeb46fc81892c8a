// The events of a few ranks as a browser can draw them: lanes of nested slices, arrows from launches to kernels.
//
// A page holds a limited number of slices. Where a rank has more, the slowest and the median step come first, device
// events before those of the host, and the longest first; a lane that lost slices carries the covered share of each of
// its columns, so that nothing looks idle that is not.
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
  bool whole = true;                  // every event of the lane is in `slices`
  int depth = 0;                      // rows
  std::vector<TimelineSlice> slices;  // by start, longer ones first
  // Not whole: of equal columns of the time line, the covered share, 0 (nothing) to 9 (all of it).
  std::vector<uint8_t> share;
};

// Both count the slices of the rank, lane after lane.
struct TimelineFlow {
  uint32_t launch = 0, device = 0;
};

struct TimelineRank {
  int rank = 0;
  std::vector<TimelineLane> lanes;  // devices first, then threads, each by their time
  std::vector<TimelineFlow> flows;  // by device slice
  int64_t events = 0;               // that could be drawn
  int64_t slices = 0;               // that are
};

struct TimelineName {
  std::string text;   // as tables show it
  std::string whole;  // where that is shorter; empty otherwise
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

// ranks: those to draw, in the order in which they are to stand.
Timeline make_timeline(const std::vector<TimelineInput>& ranks, const TimelineLimits& limits = {});

}  // namespace ms::profile
