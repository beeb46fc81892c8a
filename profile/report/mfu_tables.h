// FLOPs, utilisation and intensity as tables.
#pragma once

#include <vector>

#include "profile/analysis/mfu.h"
#include "profile/report/data_table.h"

namespace ms::profile {

struct Peak {
  double tflops = 0;       // of one rank's device; 0: unknown, and no share of it is told
  double model_flops = 0;  // of one step, all ranks together, without what is computed twice; 0: unknown
};

// Of each rank: executed FLOP/s and their share of the peak (HFU), the model's share (MFU); then each kernel or
// operator.
std::vector<DataTable> mfu_tables(const std::vector<Mfu>& ranks, const Peak& peak, int64_t top);

}  // namespace ms::profile
