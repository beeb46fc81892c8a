#include "train/loop/peak.h"

#include <algorithm>

#include "core/tensor.h"
#include "train/ops/linear.h"

namespace ms::train {

double measure_peak_tflops(ops::Context& context) {
  constexpr int64_t kSize = 1024;
  constexpr int kRounds = 4;
  const int64_t flops_before = context.flops;
  const core::Tensor x = core::Tensor::zeros(context.arena, core::DType::kFp32, {kSize, kSize}, core::MemoryTag::kTmp);
  const core::Tensor weight =
      core::Tensor::zeros(context.arena, core::DType::kFp32, {kSize, kSize}, core::MemoryTag::kTmp);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t start_ns = core::trace::now_ns();
    const core::Tensor y = ops::linear(context, x, weight);
    const double seconds = static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9;
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds * 1e-12);
  }
  context.flops = flops_before;
  return best;
}

}  // namespace ms::train
