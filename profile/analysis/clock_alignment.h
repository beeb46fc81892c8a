// Aligns the clocks of several ranks: by the clock tables in their files, else by collectives, whose members finish at
// the same time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profile/analysis/collectives.h"

namespace ms::profile {

enum class Alignment : uint8_t { kNone, kOffset, kLinear, kTables };
std::string_view alignment_name(Alignment alignment);  // "none", "offset", "linear", "tables"

// Offset of one rank's clock to the reference's: own - reference. Always measured; applied unless the alignment is
// kNone.
struct RankClock {
  int64_t samples = 0;   // matched operations; 0 for the reference
  int64_t offset = 0;    // median; with tables or a line, at the middle of the trace
  int64_t residual = 0;  // median of |sample - offset|
  double drift_ppm = 0;
  // offset(t) = offset + slope * (t - middle), for unix time t
  double slope = 0;
  int64_t middle = 0;
  bool applied = true;

  int64_t to_reference(int64_t t) const;
};

struct ClockAlignment {
  Alignment alignment = Alignment::kNone;
  bool reliable = false;  // false: results across ranks are not reported
  std::string why;        // reason, if not reliable
  std::vector<RankClock> ranks;
};

enum class AlignMode : uint8_t { kAuto, kNone, kOffset, kLinear };

// comms: of these ranks. The first rank is the reference.
ClockAlignment align_clocks(const std::vector<RankDevices>& ranks, const MatchedComms& comms, AlignMode mode);

}  // namespace ms::profile
