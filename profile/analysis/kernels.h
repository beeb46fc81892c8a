// Time by kernel, with rates where the trace has FLOPs or bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

struct KernelRow {
  std::string name;
  DeviceClass device_class = DeviceClass::kComputation;
  int64_t count = 0;
  int64_t sum_ns = 0, min_ns = 0, max_ns = 0;
  double mean_ns = 0, std_ns = 0;      // sample deviation (n - 1); 0 for one event
  int64_t flops = -1, bytes = -1;      // sums; -1 if no event of the row has them
  int64_t flops_ns = 0, bytes_ns = 0;  // durations of the events that have them, for rates
};

// Grouped by name and class, by sum descending, then by name.
std::vector<KernelRow> kernel_rows(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
