// Times of exported traces, counted from the earliest event: one rank keeps its own clock, several share one.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/analysis/clock_alignment.h"
#include "profile/clock_line.h"
#include "profile/store.h"

namespace ms::profile {

// Converts a rank's own time to common time: the rank's own clock if it is alone, else unix time of the first rank.
class CommonClock {
 public:
  CommonClock() = default;
  // tables: use the clock table of our recorder, which gives rank 0's clock; else `clock`, aligned by collectives.
  CommonClock(const RankTrace& trace, bool tables, const RankClock& clock)
      : trace_(&trace), tables_(tables), line_(tables ? trace.clocks : std::vector<ClockPoint>{}), clock_(clock) {}
  int64_t operator()(int64_t ts) const;

 private:
  const RankTrace* trace_ = nullptr;
  bool tables_ = false;
  ClockLine line_{{}};
  RankClock clock_;
};

struct ExportClock {
  std::vector<CommonClock> ranks;
  int64_t origin = 0;       // the earliest event, in common time: exported times count from it
  int64_t unix_origin = 0;  // its unix time
};

// ranks: not empty, the first is the reference. Several ranks without clock tables are aligned by their collectives,
// O(n log n).
ExportClock export_clock(const std::vector<const RankTrace*>& ranks);

}  // namespace ms::profile
