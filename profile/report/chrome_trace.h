// Writes ranks as a Chrome trace with Kineto's categories and arguments, for Perfetto, chrome://tracing, TensorBoard
// and HTA.
//
// Collectives are named as other tools expect (ncclDevKernel_AllReduce(tp)); "Collective name" and "Process Group Name"
// keep our names. ts and dur have three decimals, so nothing is rounded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profile/report/output_file.h"
#include "profile/store.h"

namespace ms::profile {

// One rank by its own clock, or several (merged) by rank 0's with process id = rank. ranks is not empty. critical: a
// critical path as ascending events of the first rank; they get "critical": 1 and a flow from each to the next. files:
// that the ranks were read from; slices keep all arguments of those that are other programs' Chrome JSON, which are
// read once more, if RankTrace::keep_file_order was set. Throws kIo, and what read_arguments throws.
void write_chrome_trace(const std::vector<const RankTrace*>& ranks, OutputFile& out,
                        std::span<const uint32_t> critical = {}, std::span<const FileInfo> files = {});

}  // namespace ms::profile
