// The most FLOP/s that one rank can reach: the denominator of MFU and HFU.
#pragma once

#include <string>

#include "core/dtype.h"
#include "train/ops/context.h"

namespace ms::train {

// Best of several GEMMs of 1024 x 1024 x 1024 with operands of dtype, in TFLOP/s, on this rank's threads. All ranks
// measure at once, so that cores and memory that ranks share count once. Takes 0.2 s, on a slow machine four GEMMs.
// Leaves context.flops as it was.
double measure_gemm_tflops(ops::Context& context, core::DType dtype);

class Roofline {
 public:
  Roofline() = default;
  // tflops: of one rank. measured: by measure_gemm_tflops, not given by the user.
  Roofline(double tflops, bool measured) : tflops_(tflops), measured_(measured) {}

  double tflops() const { return tflops_; }

  // To be called with what each step has reached, TFLOP/s per rank. A machine that was busy during the measurement
  // reaches more later: a measured roofline rises to that, a given one stays. Returns what the user should know, once;
  // else "".
  std::string reached(double hardware_tflops);

 private:
  double tflops_ = 0;
  bool measured_ = false;
  bool told_ = false;
};

}  // namespace ms::train
