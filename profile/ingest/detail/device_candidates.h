// Events of categories that nobody knows are device work if they have a device, a stream and a launch (traces.md 4.2).
#pragma once

#include <cstdint>
#include <vector>

#include "profile/import_stats.h"
#include "profile/store.h"

namespace ms::profile::detail {

// candidates: events with device and stream, whose categories say Side::kDevice. Those without a launch become the
// host's. Each is counted.
void resolve_candidates(const std::vector<uint32_t>& candidates, RankTrace& trace, ImportStats& stats);

}  // namespace ms::profile::detail
