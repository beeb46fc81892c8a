// Adds counter tracks to a trace for viewers: length of each stream's queue, and copy bandwidths.
#pragma once

#include "profile/analysis/device.h"

namespace ms::profile {

// Adds counters to the trace: "queue length, stream N" for each stream with launches, and "HtoD GB/s", ...: the sum
// over running copies, each at bytes / dur.
void add_counter_tracks(RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
