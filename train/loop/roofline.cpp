#include "train/loop/roofline.h"

#include <algorithm>

#include "core/error.h"
#include "core/tensor.h"
#include "train/ops/linear.h"

namespace ms::train {

double measure_gemm_tflops(ops::Context& context, core::DType dtype) {
  constexpr int64_t kSize = 1024;
  constexpr int kMinRounds = 4;
  constexpr double kSeconds = 0.2;
  const int64_t flops_before = context.flops;
  const core::Tensor x = core::Tensor::zeros(context.arena, dtype, {kSize, kSize}, core::MemoryTag::kTmp);
  const core::Tensor weight = core::Tensor::zeros(context.arena, dtype, {kSize, kSize}, core::MemoryTag::kTmp);
  double best = 0, total_seconds = 0;
  for (int round = 0; round < kMinRounds || total_seconds < kSeconds; ++round) {
    const int64_t start_ns = core::trace::now_ns();
    const core::Tensor y = ops::linear(context, x, weight);
    const double seconds = static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9;
    total_seconds += seconds;
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds * 1e-12);
  }
  context.flops = flops_before;
  return best;
}

std::string Roofline::reached(double hardware_tflops) {
  if (hardware_tflops <= tflops_) return "";
  const double before = tflops_;
  if (measured_) tflops_ = hardware_tflops;
  if (told_) return "";
  told_ = true;
  const std::string seen = core::cat("a step has reached ", hardware_tflops, " TFLOP/s per rank, above ");
  return measured_
             ? core::cat(seen, "the ", before,
                         " measured at the start, when the machine must have been busy: MFU and HFU are shares of "
                         "the most that a step has reached from here on (--peak-tflops sets a value)")
             : core::cat(seen, "--peak-tflops ", before, ": MFU and HFU are too large; give the rank's peak for ",
                         "this dtype, or 0 to have it measured");
}

}  // namespace ms::train
