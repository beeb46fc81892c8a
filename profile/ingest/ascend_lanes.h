// Gives the events of an Ascend trace_view their meaning (traces.md 5.2, 5.3): which lanes are the device's, the
// collectives', the vendor's own overlap analysis, is told by the names of processes and threads, which may stand
// anywhere in the file.
#pragma once

#include "profile/store.h"

namespace ms::profile {

// False, and nothing done, for a trace without Ascend's processes. Call before finish_trace.
bool assign_ascend_lanes(RankTrace& trace);

}  // namespace ms::profile
