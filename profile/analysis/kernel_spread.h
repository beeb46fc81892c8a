// Differences in the time of a kernel between ranks: one row per kernel, over the ranks that run it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/analysis/kernels.h"

namespace ms::profile {

// sum: over the events of one rank, as KernelRow::sum_ns. Quantiles are over ranks, by nearest rank: the smallest value
// that at least this share of them does not exceed.
struct KernelSpreadRow {
  std::string name;
  DeviceClass device_class = DeviceClass::kComputation;
  int64_t ranks = 0;   // that run it
  int64_t sum_ns = 0;  // over all ranks
  int64_t min_ns = 0, p25_ns = 0, median_ns = 0, p75_ns = 0, max_ns = 0;
  int min_rank = 0, max_rank = 0;  // the first, if several
};
using KernelSpread = std::vector<KernelSpreadRow>;

struct RankKernels {
  int rank = 0;
  const std::vector<KernelRow>* rows = nullptr;  // not owned
};

// By sum descending, then name; grouped by name and class. O(n log n) in the rows.
KernelSpread kernel_spread(const std::vector<RankKernels>& ranks);

}  // namespace ms::profile
