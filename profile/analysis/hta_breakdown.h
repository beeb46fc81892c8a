// The temporal breakdown and the overlap of Holistic Trace Analysis 0.6.1, counted as it counts (traces.md 14): for
// people who compare. breakdown.h is exact.
#pragma once

#include <cstdint>
#include <optional>

#include "profile/analysis/hta_frame.h"

namespace ms::profile {

struct HtaBreakdown {  // times in ns, whole microseconds where the trace was rounded
  int64_t idle = 0, compute = 0, non_compute = 0, kernel = 0;  // kernel: first start to last end
  int64_t overlap = 0, communication = 0;
};

// Nothing without events on streams, synchronisation included. Rounding makes short events negative, and they count so.
std::optional<HtaBreakdown> hta_breakdown(const HtaFrame& frame);

}  // namespace ms::profile
