#include "train/ops/norm.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {

using core::Tensor;
using core::TensorView;

Tensor rms_norm(Context& context, const TensorView& x, const TensorView& gamma, double epsilon, Tensor* rstd) {
  const detail::OpScope scope(context, "ms::rms_norm", x, gamma);
  const int64_t h = x.dim(-1), rows = detail::num_rows(x);
  detail::check_size(gamma, h, "rms_norm: gamma");
  detail::check_dtype(gamma, x.dtype(), "rms_norm: gamma");
  Tensor y(context.arena, x.dtype(), x.shape(), core::MemoryTag::kAct);
  float* r = nullptr;
  if (rstd != nullptr) {
    *rstd = Tensor(context.arena, core::DType::kFp32, {rows}, core::MemoryTag::kAct);
    r = rstd->data<float>();
  }
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(rows, detail::row_grain(h), [&](int64_t begin, int64_t end) {
      kernels::rms_norm(x.data<T>() + begin * h, gamma.data<T>(), end - begin, h, static_cast<float>(epsilon),
                        y.data<T>() + begin * h, r == nullptr ? nullptr : r + begin);
    });
  });
  return y;
}

Tensor rms_norm_backward(Context& context, const TensorView& dy, const TensorView& x, const TensorView& gamma,
                         const TensorView& rstd, const TensorView& dgamma, const TensorView* dresidual) {
  const detail::OpScope scope(context, "ms::rms_norm_backward", dy, x, gamma);
  const int64_t h = x.dim(-1), rows = detail::num_rows(x);
  detail::check_shape(dy, x.shape(), "rms_norm_backward: dy");
  detail::check_dtype(dy, x.dtype(), "rms_norm_backward: dy");
  detail::check_dtype(gamma, x.dtype(), "rms_norm_backward: gamma");
  detail::check_size(gamma, h, "rms_norm_backward: gamma");
  detail::check_size(rstd, rows, "rms_norm_backward: rstd");
  detail::check_size(dgamma, h, "rms_norm_backward: dgamma");
  if (dresidual != nullptr) {
    detail::check_size(*dresidual, x.size(), "rms_norm_backward: dresidual");
    detail::check_dtype(*dresidual, x.dtype(), "rms_norm_backward: dresidual");
  }
  Tensor dx(context.arena, x.dtype(), x.shape(), core::MemoryTag::kAct);
  // dgamma is summed over blocks of rows, then over blocks: both in an order that knows no threads.
  const int64_t block_rows = std::max<int64_t>(64, (rows + 31) / 32), blocks = (rows + block_rows - 1) / block_rows;
  const Tensor partial =
      Tensor::zeros(context.arena, core::DType::kFp32, {std::max<int64_t>(blocks, 1), h}, core::MemoryTag::kTmp);
  const auto kernel = scope.kernel(-1, (dresidual != nullptr ? 4 : 3) * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * block_rows, offset = first * h;
        kernels::rms_norm_backward(
            dy.data<T>() + offset, x.data<T>() + offset, gamma.data<T>(), rstd.data<float>() + first,
            dresidual != nullptr ? dresidual->data<T>() + offset : nullptr, std::min(block_rows, rows - first), h,
            dx.data<T>() + offset, partial.data<float>() + block * h);
      }
    });
  });
  for (int64_t block = 0; block < blocks; ++block) {
    kernels::accumulate(dgamma.data<float>(), partial.data<float>() + block * h, h);
  }
  return dx;
}

}  // namespace ms::ops
