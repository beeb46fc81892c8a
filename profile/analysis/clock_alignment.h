// One clock for several ranks (traces.md 10.1): from the clock tables in their files, else from collectives, whose
// members leave together.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profile/analysis/collectives.h"

namespace ms::profile {

enum class Alignment : uint8_t { kNone, kOffset, kLinear, kTables };
std::string_view alignment_name(Alignment alignment);  // "none", "offset", "linear", "tables"

// Offset of one rank's clock to the reference's: own - reference. Measured always, applied unless the alignment is
// none.
struct RankClock {
  int64_t samples = 0;   // matched instances; the reference has none
  int64_t offset = 0;    // median; with tables or a line, at the middle of the trace
  int64_t residual = 0;  // median of |sample - offset|
  double drift_ppm = 0;
  // offset(t) = offset + slope * (t - middle), of unix time t
  double slope = 0;
  int64_t middle = 0;
  bool applied = true;

  int64_t to_reference(int64_t t) const;
};

struct ClockAlignment {
  Alignment alignment = Alignment::kNone;
  bool reliable = false;  // of the matching: without it nothing is said across ranks
  std::string why;        // when it is not
  std::vector<RankClock> ranks;
};

enum class AlignMode : uint8_t { kAuto, kNone, kOffset, kLinear };

// comms: of these ranks. The reference is the first rank.
ClockAlignment align_clocks(const std::vector<RankDevices>& ranks, const MatchedComms& comms, AlignMode mode);

}  // namespace ms::profile
