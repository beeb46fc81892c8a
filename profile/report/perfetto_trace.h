// Writes ranks as a Perfetto trace (traces.md 6): opens in ui.perfetto.dev faster than JSON, and with slices that
// overlap.
//
// Categories, names of arguments and what is kept are those of report/chrome_trace.h, but names stay ours. Times are
// nanoseconds since the earliest event on the clock BOOTTIME, a snapshot of which says their unix time. The launch and
// its kernels are joined by a flow. An instant "msuite" carries what ingest/perfetto.h needs to make the same trace
// again.
#pragma once

#include <vector>

#include "profile/report/output_file.h"
#include "profile/store.h"

namespace ms::profile {

// One rank by its own clock, or several (merged) by rank 0's, process id = rank; a sequence of packets each. ranks is
// not empty. Memory: that of the slices which are open at once.
void write_perfetto_trace(const std::vector<const RankTrace*>& ranks, OutputFile& out);

}  // namespace ms::profile
