// Checks a trace after reading for impossible data, so that its numbers are not trusted blindly: events far from all
// others, impossible durations, overlapping slices, launches without partners.
#pragma once

#include <string>

#include "profile/import_stats.h"
#include "profile/store.h"

namespace ms::profile {

// Does not change the trace; findings are counted in stats. path appears in messages. O(events).
void inspect_trace(const RankTrace& trace, const std::string& path, ImportStats& stats);

}  // namespace ms::profile
