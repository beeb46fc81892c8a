// Writes ranks as a Perfetto trace: opens in ui.perfetto.dev faster than JSON, and keeps slices that overlap.
//
// Categories and names of arguments are those of report/chrome_trace.h; names of events stay as they are. Times are
// nanoseconds since the earliest event on the clock BOOTTIME, and a clock snapshot gives its unix time. A flow joins a
// launch and its kernels. An instant "msuite" carries what ingest/perfetto.h needs to restore a native trace.
#pragma once

#include <vector>

#include "profile/report/output_file.h"
#include "profile/store.h"

namespace ms::profile {

// One rank by its own clock, or several (merged) by rank 0's, process id = rank; a sequence of packets each. ranks is
// not empty. Memory: that of the slices which are open at once.
void write_perfetto_trace(const std::vector<const RankTrace*>& ranks, OutputFile& out);

}  // namespace ms::profile
