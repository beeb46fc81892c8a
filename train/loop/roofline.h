// The most FLOP/s that one rank can reach: the denominator of MFU and HFU.
#pragma once

#include <cstdint>
#include <string>

#include "core/dtype.h"
#include "train/ops/context.h"

namespace ms::train {

// Best of several GEMMs of 1024 x 1024 x 1024 with operands of dtype, in TFLOP/s, on this rank's threads. All ranks
// measure at once, so that cores and memory that ranks share count once. Takes `seconds`, but at least min_rounds
// GEMMs. Counts no FLOPs in the context and records no events.
double measure_gemm_tflops(const ops::Context& context, core::DType dtype, int min_rounds = 4, double seconds = 0.2);

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

  // Whether to measure once more after this log line (1 for the first). After the 1st, 2nd, 4th, 8th .. of a run: a
  // busy machine at the start is not what the whole run is held against, and the GEMMs of a long run are few. A given
  // roofline is never measured.
  bool is_measured_after(int64_t line) const;
  // Takes what was measured again: only a higher value counts. Returns what the user should know, else "".
  std::string measured_again(double tflops);

 private:
  double tflops_ = 0;
  bool measured_ = false;
  bool told_ = false;
};

}  // namespace ms::train
