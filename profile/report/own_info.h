// The parts of a native trace that other formats have no field for, as JSON text stored in them. ingest/own_meta.h
// reads it back.
#pragma once

#include <cstdint>
#include <string>

#include "profile/store.h"

namespace ms::profile {

// {"origin_ns", "clocks", "meta"} of a trace from our recorder. origin: time 0 of the export, on the rank's own clock.
std::string own_info(const RankTrace& trace, int64_t origin);

}  // namespace ms::profile
