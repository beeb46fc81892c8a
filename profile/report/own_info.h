// What a native trace holds and other formats have no word for, as text that goes along in them (ingest/own_meta.h
// reads it back).
#pragma once

#include <cstdint>
#include <string>

#include "profile/store.h"

namespace ms::profile {

// {"origin_ns", "clocks", "meta"} of a trace of our recorder. origin: of the exported times, on the rank's own clock.
std::string own_info(const RankTrace& trace, int64_t origin);

}  // namespace ms::profile
