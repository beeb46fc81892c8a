#include "train/loop/roofline.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/tensor.h"
#include "train/ops/linear.h"

namespace ms::train {

double measure_gemm_tflops(const ops::Context& context, core::DType dtype, int min_rounds, double seconds) {
  constexpr int64_t kSize = 1024;
  ops::Context quiet{context.pool, context.arena};
  quiet.deterministic = context.deterministic;
  const core::Tensor x = core::Tensor::zeros(context.arena, dtype, {kSize, kSize}, core::MemoryTag::kTmp);
  const core::Tensor weight = core::Tensor::zeros(context.arena, dtype, {kSize, kSize}, core::MemoryTag::kTmp);
  double best = 0, total_seconds = 0;
  for (int round = 0; round < min_rounds || total_seconds < seconds; ++round) {
    const int64_t start_ns = core::trace::now_ns();
    const core::Tensor y = ops::linear(quiet, x, weight);
    const double of_round = static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9;
    total_seconds += of_round;
    best = std::max(best, 2.0 * kSize * kSize * kSize / of_round * 1e-12);
  }
  return best;
}

bool Roofline::is_measured_after(int64_t line) const {
  return measured_ && std::has_single_bit(static_cast<uint64_t>(line));
}

std::string Roofline::measured_again(double tflops) {
  constexpr double kToTell = 1.05;  // less is the noise of a measurement
  if (!measured_ || tflops <= tflops_) return "";
  const double before = tflops_;
  tflops_ = tflops;
  if (tflops < kToTell * before) return "";
  return core::cat(tflops, " TFLOP/s per rank, measured again; it was ", before,
                   ", when the machine must have been busy: MFU and HFU are shares of the higher value from here on, "
                   "and were too large by ",
                   tflops / before, " x");
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
