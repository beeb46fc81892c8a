// Gives the events of an Ascend trace_view their meaning (traces.md 5.2, 5.3): which lanes are the device's, the
// collectives', the vendor's own overlap analysis, is told by the names of processes and threads, which may stand
// anywhere in the file.
#pragma once

#include <string_view>

#include "profile/store.h"

namespace ms::profile {

// Ends the type of a task that computes though its type alone does not say so: the database lists it as computation.
inline constexpr std::string_view kListedComputation = " (computation)";

// False, and nothing done, for a trace without Ascend's processes. Call before finish_trace.
bool assign_ascend_lanes(RankTrace& trace);

}  // namespace ms::profile
