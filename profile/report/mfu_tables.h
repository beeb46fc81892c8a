// FLOP/s, utilisation and arithmetic intensity as tables.
#pragma once

#include <vector>

#include "profile/analysis/mfu.h"
#include "profile/report/data_table.h"

namespace ms::profile {

struct Peak {
  double tflops = 0;       // of one rank's device; 0: unknown, and shares are empty
  double model_flops = 0;  // of one step of all ranks, without recompute; 0: unknown
};

// "mfu": per rank, executed FLOP/s and their share of the peak (HFU), and the model's share (MFU). "roofline": per
// kernel or operator, rates and FLOPs per byte.
std::vector<DataTable> mfu_tables(const std::vector<Mfu>& ranks, const Peak& peak, int64_t top);

}  // namespace ms::profile
