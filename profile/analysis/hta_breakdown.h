// The temporal breakdown and the overlap of Holistic Trace Analysis 0.6.1, counted as it counts (traces.md 14): for
// people who compare. breakdown.h is exact.
#pragma once

#include <cstdint>
#include <optional>

#include "profile/store.h"

namespace ms::profile {

struct HtaBreakdown {  // times in ns, whole microseconds where the trace was rounded
  int64_t idle = 0, compute = 0, non_compute = 0, kernel = 0;  // kernel: first start to last end
  int64_t overlap = 0, communication = 0;
};

// trace: after round_as_hta. keep_last_step: its include_last_profiler_step. Nothing without events on streams.
//
// Events are those on a stream, synchronisation included; with several steps, of those with a correlation only what a
// host event launched that starts before the last step, or, when that is kept, up to its end. Rounding makes short
// events negative, and they count so.
std::optional<HtaBreakdown> hta_breakdown(const RankTrace& trace, bool keep_last_step);

}  // namespace ms::profile
