// Writes ranks as a Chrome trace with Kineto's categories and arguments: opens in Perfetto, chrome://tracing,
// TensorBoard and HTA (traces.md 7.4).
//
// Collectives get the name that other tools look for (ncclDevKernel_AllReduce(tp)); "Collective name" and "Process
// Group Name" keep ours. ts and dur have three decimals: nothing is rounded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profile/report/output_file.h"
#include "profile/store.h"

namespace ms::profile {

// One rank by its own clock, or several (merged) by rank 0's, process id = rank. ranks is not empty. critical: events
// of the first rank (a critical path), ascending: they get "critical": 1, and a flow from each to the next. files: that
// the ranks were read from; those that are other programs' Chrome JSON are read once more, if
// RankTrace::keep_file_order was set, and their events keep all arguments. Throws what read_arguments throws.
void write_chrome_trace(const std::vector<const RankTrace*>& ranks, OutputFile& out,
                        std::span<const uint32_t> critical = {}, std::span<const FileInfo> files = {});

}  // namespace ms::profile
