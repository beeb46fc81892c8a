// The times of an exported trace: of one rank by its own clock, of several by one clock, from the earliest event on.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/analysis/clock_alignment.h"
#include "profile/clock_line.h"
#include "profile/store.h"

namespace ms::profile {

// Own time to common time: of one rank alone its own, of ranks together the reference's unix time.
class CommonClock {
 public:
  CommonClock() = default;
  // Clock tables: rank 0's clock, exactly. Otherwise: what the collectives say.
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

// ranks: not empty, the first is the reference. Cost: of several ranks without clock tables, matching their
// collectives.
ExportClock export_clock(const std::vector<const RankTrace*>& ranks);

}  // namespace ms::profile
