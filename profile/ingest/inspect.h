// Looks at a trace that has been read for what cannot be true, so that nobody takes its numbers for granted
// (traces.md 15): events far from all others, impossible durations, overlapping slices, launches without partners.
#pragma once

#include <string>

#include "profile/import_stats.h"
#include "profile/store.h"

namespace ms::profile {

// Nothing is changed; what is found is counted in stats. path is for messages. O(events).
void inspect_trace(const RankTrace& trace, const std::string& path, ImportStats& stats);

}  // namespace ms::profile
