// Reads the metadata of mstrain's recorder, as stored in native traces and in the JSON exported from them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "profile/store.h"

namespace ms::profile {

// Sets rank, world_size, level, pid, the unix time of ts 0, and RankTrace::meta (without the chunk index and event
// count of the file). Throws kCorruptData for missing or impossible values.
void read_own_meta(nlohmann::json meta, RankTrace& trace);

// A whole number in [least, end). Throws likewise.
int64_t own_integer(const nlohmann::json& object, const char* key, int64_t least, int64_t end);

// A point of the clock table from {"at_ns", "offset_ns", "error_ns"}. Throws likewise.
ClockPoint read_own_clock(const nlohmann::json& clock);

// The time base of a native trace that was exported to another format.
struct OwnTimes {
  int64_t origin = 0;     // time of exported time 0 on the recorder's clock
  int64_t base_unix = 0;  // unix time of time 0 of the recorder's clock
};

// Reads the complete metadata of an export (report/own_info.h): the above without the base, and the clock table. Throws
// likewise; `trace` is then unchanged.
OwnTimes read_own_info(const nlohmann::json& own, RankTrace& trace);

// Adds origin to every time of a trace before finish_trace. Returns false, with nothing changed, if a sum would
// overflow.
bool shift_times(RankTrace& trace, int64_t origin);

}  // namespace ms::profile
