// Events of unknown categories are device work only if they have a device, a stream and a launch with the same
// correlation.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/import_stats.h"
#include "profile/store.h"

namespace ms::profile::detail {

// candidates: events with device and stream, whose categories say Side::kDevice. Those without a launch are moved to
// the host side. Every candidate is counted.
void resolve_candidates(const std::vector<uint32_t>& candidates, RankTrace& trace, ImportStats& stats);

}  // namespace ms::profile::detail
