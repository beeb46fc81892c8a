#include "train/ops/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/adamw.h"
#include "kernels/sgd.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

kernels::AdamwScalars scalars_of(const AdamwParameters& parameters) {
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
  return scalars;
}

kernels::Fp32Halves halves_of(const SharedMaster& master, std::span<float> exp_avg_sq) {
  const size_t n = exp_avg_sq.size();
  MS_CHECK(master.weights.size() == n && master.rest.size() == n, "shared master weights: sizes ", n, ", ",
           master.weights.size(), ", ", master.rest.size());
  return {master.weights.data(), master.rest.data(), exp_avg_sq.data()};
}

}  // namespace

void adamw(Context& context, std::span<float> master, std::span<float> grad, std::span<float> exp_avg,
           std::span<float> exp_avg_sq, const AdamwParameters& parameters, std::span<kernels::bf16> param_bf16,
           std::span<float> ema) {
  const detail::OpScope scope(context, "ms::adamw");
  const size_t n = master.size();
  MS_CHECK(grad.size() == n && exp_avg.size() == n && exp_avg_sq.size() == n &&
               (param_bf16.empty() || param_bf16.size() == n) && (ema.empty() || ema.size() == n),
           "adamw: sizes ", n, ", ", grad.size(), ", ", exp_avg.size(), ", ", exp_avg_sq.size(), ", ",
           param_bf16.size(), ", ", ema.size());
  const kernels::AdamwScalars scalars = scalars_of(parameters);
  const int64_t bytes = 8 * 4 + (param_bf16.empty() ? 0 : 2) + (ema.empty() ? 0 : 8);
  const auto kernel = scope.kernel(-1, static_cast<int64_t>(n) * bytes);
  context.pool.parallel_for(static_cast<int64_t>(n), detail::kGrainElements, [&](int64_t begin, int64_t end) {
    kernels::adamw(master.data() + begin, grad.data() + begin, exp_avg.data() + begin, exp_avg_sq.data() + begin,
                   param_bf16.empty() ? nullptr : param_bf16.data() + begin, ema.empty() ? nullptr : ema.data() + begin,
                   end - begin, scalars);
  });
}

void adamw(Context& context, const SharedMaster& master, std::span<float> grad, std::span<float> exp_avg,
           std::span<float> exp_avg_sq, const AdamwParameters& parameters) {
  const detail::OpScope scope(context, "ms::adamw");
  const kernels::Fp32Halves halves = halves_of(master, exp_avg_sq);
  const auto n = static_cast<int64_t>(exp_avg_sq.size());
  MS_CHECK(grad.size() == exp_avg_sq.size() && exp_avg.size() == exp_avg_sq.size(), "adamw: sizes ", n, ", ",
           grad.size(), ", ", exp_avg.size());
  const kernels::AdamwScalars scalars = scalars_of(parameters);
  const auto kernel = scope.kernel(-1, n * 8 * 4);
  context.pool.parallel_for(n, detail::kGrainElements, [&](int64_t begin, int64_t end) {
    kernels::adamw(halves.from(begin), grad.data() + begin, exp_avg.data() + begin, end - begin, scalars);
  });
}

void sgd(Context& context, std::span<float> master, std::span<float> grad, std::span<float> momentum_buffer,
         const SgdParameters& parameters, std::span<kernels::bf16> param_bf16) {
  const detail::OpScope scope(context, "ms::sgd");
  const size_t n = master.size();
  MS_CHECK(grad.size() == n && (momentum_buffer.empty() || momentum_buffer.size() == n) &&
               (param_bf16.empty() || param_bf16.size() == n),
           "sgd: sizes ", n, ", ", grad.size(), ", ", momentum_buffer.size(), ", ", param_bf16.size());
  const kernels::SgdScalars scalars{static_cast<float>(parameters.lr), static_cast<float>(parameters.momentum),
                                    static_cast<float>(parameters.weight_decay), parameters.grad_scale};
  const int64_t bytes = 4 * 4 + (momentum_buffer.empty() ? 0 : 8) + (param_bf16.empty() ? 0 : 2);
  const auto kernel = scope.kernel(-1, static_cast<int64_t>(n) * bytes);
  context.pool.parallel_for(static_cast<int64_t>(n), detail::kGrainElements, [&](int64_t begin, int64_t end) {
    kernels::sgd(master.data() + begin, grad.data() + begin,
                 momentum_buffer.empty() ? nullptr : momentum_buffer.data() + begin,
                 param_bf16.empty() ? nullptr : param_bf16.data() + begin, end - begin, scalars);
  });
}

void split_master(Context& context, std::span<const float> master, const SharedMaster& shared,
                  std::span<float> exp_avg_sq) {
  const detail::OpScope scope(context, "ms::split_master");
  const kernels::Fp32Halves halves = halves_of(shared, exp_avg_sq);
  const auto n = static_cast<int64_t>(exp_avg_sq.size());
  MS_CHECK(master.size() == exp_avg_sq.size(), "split_master: sizes ", n, ", ", master.size());
  const auto kernel = scope.kernel(-1, n * 4 * 4);
  context.pool.parallel_for(n, detail::kGrainElements, [&](int64_t begin, int64_t end) {
    kernels::split_fp32(master.data() + begin, end - begin, halves.from(begin));
  });
}

void join_master(Context& context, const SharedMaster& shared, std::span<float> exp_avg_sq, std::span<float> master) {
  const detail::OpScope scope(context, "ms::join_master");
  const kernels::Fp32Halves halves = halves_of(shared, exp_avg_sq);
  const auto n = static_cast<int64_t>(exp_avg_sq.size());
  MS_CHECK(master.size() == exp_avg_sq.size(), "join_master: sizes ", n, ", ", master.size());
  const auto kernel = scope.kernel(-1, n * 4 * 4);
  context.pool.parallel_for(n, detail::kGrainElements, [&](int64_t begin, int64_t end) {
    kernels::join_fp32(halves.from(begin), end - begin, master.data() + begin);
  });
}

void sums_of_squares(Context& context, std::span<const std::span<const float>> tensors, std::span<double> sums) {
  const detail::OpScope scope(context, "ms::sum_of_squares");
  constexpr int64_t kBlock = 4096;
  MS_CHECK(tensors.size() == sums.size(), "sums_of_squares: ", tensors.size(), " tensors, ", sums.size(), " sums");
  const auto num_blocks = [](std::span<const float> values) {
    return (static_cast<int64_t>(values.size()) + kBlock - 1) / kBlock;
  };
  int64_t blocks = 0, elements = 0;
  for (const auto& values : tensors) blocks += num_blocks(values), elements += static_cast<int64_t>(values.size());
  // Of each tensor the number of its first block; of each block its sum.
  const auto size_bytes = static_cast<int64_t>(tensors.size() * sizeof(int64_t)) + blocks * int64_t{sizeof(double)};
  const core::Buffer memory = context.arena.allocate(size_bytes, core::MemoryTag::kTmp);
  const std::span first_block(reinterpret_cast<int64_t*>(memory.data()), tensors.size());
  auto* const of_block = reinterpret_cast<double*>(first_block.data() + first_block.size());
  int64_t next = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    first_block[i] = next;
    next += num_blocks(tensors[i]);
  }
  const auto kernel = scope.kernel(-1, elements * 4);
  context.pool.parallel_for(blocks, 4, [&](int64_t begin, int64_t end) {
    auto i = static_cast<size_t>(std::ranges::upper_bound(first_block, begin) - first_block.begin()) - 1;
    for (int64_t block = begin; block < end; ++block) {
      while (i + 1 < tensors.size() && first_block[i + 1] <= block) ++i;
      const auto first = static_cast<size_t>((block - first_block[i]) * kBlock);
      const auto part = tensors[i].subspan(first, std::min<size_t>(kBlock, tensors[i].size() - first));
      of_block[block] = kernels::sum_of_squares(part.data(), static_cast<int64_t>(part.size()));
    }
  });
  for (size_t i = 0; i < tensors.size(); ++i) {
    sums[i] = 0;
    const int64_t end = first_block[i] + num_blocks(tensors[i]);
    for (int64_t block = first_block[i]; block < end; ++block) sums[i] += of_block[block];
  }
}

double sum_of_squares(Context& context, std::span<const float> values) {
  double sum = 0;
  sums_of_squares(context, std::span(&values, 1), std::span(&sum, 1));
  return sum;
}

}  // namespace ms::ops
