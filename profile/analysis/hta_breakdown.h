// The temporal breakdown and the overlap of Holistic Trace Analysis 0.6.1, with its method of counting, for comparison.
// breakdown.h is exact.
#pragma once

#include <cstdint>
#include <optional>

#include "profile/analysis/hta_frame.h"

namespace ms::profile {

struct HtaBreakdown {                                          // ns; whole microseconds if the trace was rounded
  int64_t idle = 0, compute = 0, non_compute = 0, kernel = 0;  // kernel: first start to last end
  int64_t overlap = 0, communication = 0;
};

// Nullopt without events on streams (synchronisation counts as one). Rounding makes short events negative, and they are
// counted as negative.
std::optional<HtaBreakdown> hta_breakdown(const HtaFrame& frame);

}  // namespace ms::profile
