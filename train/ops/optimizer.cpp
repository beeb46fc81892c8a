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

int64_t size_of(const AdamwTensor& tensor) { return static_cast<int64_t>(tensor.exp_avg_sq.size()); }
int64_t size_of(const SgdTensor& tensor) { return static_cast<int64_t>(tensor.master.size()); }

int64_t bytes_of(const AdamwTensor& tensor) {
  return size_of(tensor) * (8 * 4 + (tensor.param_bf16.empty() ? 0 : 2) + (tensor.ema.empty() ? 0 : 8));
}
int64_t bytes_of(const SgdTensor& tensor) {
  return size_of(tensor) * (4 * 4 + (tensor.momentum_buffer.empty() ? 0 : 8) + (tensor.param_bf16.empty() ? 0 : 2));
}

bool is_size_or_empty(size_t size, size_t n) { return size == n || size == 0; }

void check(const AdamwTensor& tensor) {
  const size_t n = tensor.exp_avg_sq.size(), n_master = std::max(tensor.master.size(), tensor.shared.weights.size());
  MS_CHECK(n_master == n && tensor.grad.size() == n && tensor.exp_avg.size() == n &&
               is_size_or_empty(tensor.param_bf16.size(), n) && is_size_or_empty(tensor.ema.size(), n),
           "adamw: sizes ", n_master, ", ", tensor.grad.size(), ", ", tensor.exp_avg.size(), ", ", n, ", ",
           tensor.param_bf16.size(), ", ", tensor.ema.size());
  MS_CHECK(tensor.parameters.step >= 1, "adamw: step ", tensor.parameters.step);
}

void check(const SgdTensor& tensor) {
  const size_t n = tensor.master.size();
  MS_CHECK(tensor.grad.size() == n && is_size_or_empty(tensor.momentum_buffer.size(), n) &&
               is_size_or_empty(tensor.param_bf16.size(), n),
           "sgd: sizes ", n, ", ", tensor.grad.size(), ", ", tensor.momentum_buffer.size(), ", ",
           tensor.param_bf16.size());
}

// Calls body(tensor, begin, end) with elements [begin, end) of tensors, as one loop over the elements of all; each
// thread has a body of its own.
template <class Tensor, class Body>
void for_elements(Context& context, const detail::OpScope& scope, std::span<const Tensor> tensors, const Body& body) {
  int64_t elements = 0, bytes = 0;
  for (const Tensor& tensor : tensors) {
    check(tensor);
    elements += size_of(tensor), bytes += bytes_of(tensor);
  }
  const auto kernel = scope.kernel(-1, bytes);
  context.pool.parallel_for(elements, detail::kGrainElements, [&](int64_t begin, int64_t end) {
    Body own = body;
    int64_t before = 0;  // elements of the tensors before this one
    for (const Tensor& tensor : tensors) {
      if (before >= end) break;
      const int64_t size = size_of(tensor);
      // Threads meet in a tensor where a cache line begins.
      const auto place = [&](int64_t at) {
        return at - before >= size ? size : std::max<int64_t>(at - before, 0) / 64 * 64;
      };
      const int64_t first = place(begin), last = place(end);
      if (first < last) own(tensor, first, last);
      before += size;
    }
  });
}

template <class T>
T* from(std::span<T> values, int64_t begin) {
  return values.empty() ? nullptr : values.data() + begin;
}

}  // namespace

void adamw(Context& context, std::span<const AdamwTensor> tensors) {
  const detail::OpScope scope(context, "ms::adamw");
  AdamwParameters last;  // tensors of an update have few different ones
  kernels::AdamwScalars scalars = scalars_of(last);
  for_elements(context, scope, tensors, [=](const AdamwTensor& tensor, int64_t begin, int64_t end) mutable {
    if (last != tensor.parameters) scalars = scalars_of(last = tensor.parameters);
    float *const grad = from(tensor.grad, begin), *const exp_avg = from(tensor.exp_avg, begin);
    if (!tensor.shared.weights.empty()) {
      return kernels::adamw(halves_of(tensor.shared, tensor.exp_avg_sq).from(begin), grad, exp_avg, end - begin,
                            scalars);
    }
    kernels::adamw(from(tensor.master, begin), grad, exp_avg, from(tensor.exp_avg_sq, begin),
                   from(tensor.param_bf16, begin), from(tensor.ema, begin), end - begin, scalars);
  });
}

void adamw(Context& context, std::span<float> master, std::span<float> grad, std::span<float> exp_avg,
           std::span<float> exp_avg_sq, const AdamwParameters& parameters, std::span<kernels::bf16> param_bf16,
           std::span<float> ema) {
  const AdamwTensor tensor{.master = master,
                           .shared = {},
                           .grad = grad,
                           .exp_avg = exp_avg,
                           .exp_avg_sq = exp_avg_sq,
                           .param_bf16 = param_bf16,
                           .ema = ema,
                           .parameters = parameters};
  adamw(context, {&tensor, 1});
}

void sgd(Context& context, std::span<const SgdTensor> tensors) {
  const detail::OpScope scope(context, "ms::sgd");
  for_elements(context, scope, tensors, [](const SgdTensor& tensor, int64_t begin, int64_t end) {
    const SgdParameters& parameters = tensor.parameters;
    const kernels::SgdScalars scalars{static_cast<float>(parameters.lr), static_cast<float>(parameters.momentum),
                                      static_cast<float>(parameters.weight_decay), parameters.grad_scale};
    kernels::sgd(from(tensor.master, begin), from(tensor.grad, begin), from(tensor.momentum_buffer, begin),
                 from(tensor.param_bf16, begin), end - begin, scalars);
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
