// What a viewer can draw beside a trace (traces.md 9.6): how full each stream's queue is, and how fast copies go.
#pragma once

#include "profile/analysis/device.h"

namespace ms::profile {

// Adds counters to the trace: "queue length, stream N" of each stream that something was launched to, and
// "HtoD GB/s", ... : the sum over the copies that run, each bytes / dur over its interval.
void add_counter_tracks(RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
