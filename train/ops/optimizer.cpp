#include "train/ops/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/adamw.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {

void adamw(Context& context, std::span<float> master, std::span<float> grad, std::span<float> exp_avg,
           std::span<float> exp_avg_sq, const AdamwParameters& parameters, std::span<kernels::bf16> param_bf16,
           std::span<float> ema) {
  const detail::OpScope scope(context, "ms::adamw");
  const size_t n = master.size();
  MS_CHECK(grad.size() == n && exp_avg.size() == n && exp_avg_sq.size() == n &&
               (param_bf16.empty() || param_bf16.size() == n) && (ema.empty() || ema.size() == n),
           "adamw: sizes ", n, ", ", grad.size(), ", ", exp_avg.size(), ", ", exp_avg_sq.size(), ", ",
           param_bf16.size(), ", ", ema.size());
  MS_CHECK(parameters.step >= 1, "adamw: step ", parameters.step);
  const auto correction = [&](double beta) {
    return static_cast<float>(1.0 - std::pow(beta, static_cast<double>(parameters.step)));
  };
  kernels::AdamwScalars scalars;
  scalars.lr = static_cast<float>(parameters.lr);
  scalars.eps = static_cast<float>(parameters.eps);
  scalars.weight_decay = static_cast<float>(parameters.weight_decay);
  scalars.grad_scale = parameters.grad_scale;
  scalars.beta1 = static_cast<float>(parameters.beta1);
  scalars.one_minus_beta1 = static_cast<float>(1.0 - parameters.beta1);
  scalars.beta2 = static_cast<float>(parameters.beta2);
  scalars.one_minus_beta2 = static_cast<float>(1.0 - parameters.beta2);
  scalars.bias_correction1 = correction(parameters.beta1);
  scalars.bias_correction2 = correction(parameters.beta2);
  scalars.ema_decay = static_cast<float>(parameters.ema_decay);
  scalars.one_minus_ema_decay = static_cast<float>(1.0 - parameters.ema_decay);
  const int64_t bytes = 8 * 4 + (param_bf16.empty() ? 0 : 2) + (ema.empty() ? 0 : 8);
  const auto kernel = scope.kernel(-1, static_cast<int64_t>(n) * bytes);
  context.pool.parallel_for(static_cast<int64_t>(n), detail::kGrainElements, [&](int64_t begin, int64_t end) {
    kernels::adamw(master.data() + begin, grad.data() + begin, exp_avg.data() + begin, exp_avg_sq.data() + begin,
                   param_bf16.empty() ? nullptr : param_bf16.data() + begin, ema.empty() ? nullptr : ema.data() + begin,
                   end - begin, scalars);
  });
}

double sum_of_squares(Context& context, std::span<const float> values) {
  const detail::OpScope scope(context, "ms::sum_of_squares");
  constexpr int64_t kBlock = 4096;
  const auto n = static_cast<int64_t>(values.size());
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  const core::Buffer memory =
      context.arena.allocate(blocks * static_cast<int64_t>(sizeof(double)), core::MemoryTag::kTmp);
  auto* const sums = reinterpret_cast<double*>(memory.data());
  const auto kernel = scope.kernel(-1, n * 4);
  context.pool.parallel_for(blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock;
      sums[block] = kernels::sum_of_squares(values.data() + first, std::min(kBlock, n - first));
    }
  });
  double total = 0;
  for (int64_t block = 0; block < blocks; ++block) total += sums[block];
  return total;
}

}  // namespace ms::ops
