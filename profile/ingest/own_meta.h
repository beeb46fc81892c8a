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

// Where a trace of ours in another format has its times from.
struct OwnTimes {
  int64_t origin = 0;     // own time of exported time 0
  int64_t base_unix = 0;  // unix time of own time 0
};

// The whole of it as it stands in other formats (report/own_info.h): all of the above but the base, and the clock
// table, into a trace that is as before if this throws, as above.
OwnTimes read_own_info(const nlohmann::json& own, RankTrace& trace);

// Adds origin to every time of a trace that is not finished. False, and nothing is done, where sums would overflow.
bool shift_times(RankTrace& trace, int64_t origin);

}  // namespace ms::profile
