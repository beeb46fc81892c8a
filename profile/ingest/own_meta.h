// What our recorder says of a trace beside its events, as it stands in native files and in the JSON made of them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "profile/store.h"

namespace ms::profile {

// Sets rank, world_size, level, pid, the unix time of ts 0, and RankTrace::meta (without what counts the chunks of a
// file). Throws kCorruptData for what is missing or cannot be.
void read_own_meta(nlohmann::json meta, RankTrace& trace);

// A whole number from least to below end. Throws likewise.
int64_t own_integer(const nlohmann::json& object, const char* key, int64_t least, int64_t end);

// A point of the clock table from {"at_ns", "offset_ns", "error_ns"}. Throws likewise.
ClockPoint read_own_clock(const nlohmann::json& clock);

}  // namespace ms::profile
