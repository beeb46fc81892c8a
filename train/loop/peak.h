// What one rank can compute at best: the yardstick of MFU when --peak-tflops is not given.
#pragma once

#include "train/ops/context.h"

namespace ms::train {

// Best of a few fp32 GEMMs of 1024 x 1024 x 1024, in TFLOP/s, on this rank's threads. All ranks measure at once, so
// cores that ranks share count once. Takes some 0.1 s. Leaves context.flops as it was.
double measure_peak_tflops(ops::Context& context);

}  // namespace ms::train
