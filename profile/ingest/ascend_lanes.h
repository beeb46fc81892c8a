// Classifies the events of an Ascend trace_view: the names of processes and threads decide which lanes belong to the
// device, to collectives, and to the vendor's own overlap analysis. These names may appear anywhere in the file.
#pragma once

#include <string_view>

#include "profile/store.h"

namespace ms::profile {

// Suffix of a task type that counts as computation only because the database lists the task as computation.
inline constexpr std::string_view kListedComputation = " (computation)";

// Returns false and changes nothing if the trace has no Ascend processes. Call before finish_trace.
bool assign_ascend_lanes(RankTrace& trace);

}  // namespace ms::profile
