// How the time of a kernel differs between ranks: one row a kernel, over the ranks that run it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/analysis/kernels.h"

namespace ms::profile {

// sum over the events of one rank, as KernelRow::sum_ns. Quantiles are those of ranks, by nearest rank: the value that
// at least this share of them does not exceed.
struct KernelSpreadRow {
  std::string name;
  DeviceClass device_class = DeviceClass::kComputation;
  int64_t ranks = 0;   // that run it
  int64_t sum_ns = 0;  // of all ranks
  int64_t min_ns = 0, p25_ns = 0, median_ns = 0, p75_ns = 0, max_ns = 0;
  int min_rank = 0, max_rank = 0;  // of several, the first
};
using KernelSpread = std::vector<KernelSpreadRow>;

struct RankKernels {
  int rank = 0;
  const std::vector<KernelRow>* rows = nullptr;  // not owned
};

// By sum descending, then by name; grouped by name and class. O(n log n) in the rows.
KernelSpread kernel_spread(const std::vector<RankKernels>& ranks);

}  // namespace ms::profile
