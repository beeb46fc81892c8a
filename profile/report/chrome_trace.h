// Writes ranks as a Chrome trace with Kineto's categories and arguments: opens in Perfetto, chrome://tracing,
// TensorBoard and HTA (traces.md 7.4).
//
// Collectives get the name that other tools look for (ncclDevKernel_AllReduce(tp)); "Collective name" and "Process
// Group Name" keep ours. ts and dur have three decimals: nothing is rounded.
#pragma once

#include <string>
#include <vector>

#include "profile/report/output_file.h"
#include "profile/store.h"

namespace ms::profile {

// One rank by its own clock, or several (merged) by rank 0's, process id = rank. ranks is not empty.
void write_chrome_trace(const std::vector<const RankTrace*>& ranks, OutputFile& out);

}  // namespace ms::profile
