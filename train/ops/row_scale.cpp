#include "train/ops/row_scale.h"

#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {

using core::Tensor;
using core::TensorView;

Tensor row_dots(Context& context, const TensorView& a, const TensorView& b) {
  const detail::OpScope scope(context, "ms::row_dots", a, b);
  detail::check_shape(b, a.shape(), "row_dots: b");
  detail::check_dtype(b, a.dtype(), "row_dots: b");
  const int64_t rows = detail::num_rows(a), h = a.dim(-1);
  Tensor dots(context.arena, core::DType::kFp32, {rows}, core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 2 * a.size_bytes());
  detail::with_type(a.dtype(), [&]<class T>() {
    context.pool.parallel_for(rows, detail::row_grain(h), [&](int64_t begin, int64_t end) {
      // Of columns 0, 8, ..; 1, 9, ..: independent sums, which the compiler turns into a vector.
      constexpr int64_t kLanes = 8;
      for (int64_t row = begin; row < end; ++row) {
        const T *const x = a.data<T>() + row * h, *const y = b.data<T>() + row * h;
        float sums[kLanes] = {};
        int64_t i = 0;
        for (; i + kLanes <= h; i += kLanes) {
          for (int64_t lane = 0; lane < kLanes; ++lane)
            sums[lane] += static_cast<float>(x[i + lane]) * static_cast<float>(y[i + lane]);
        }
        for (; i < h; ++i) sums[i % kLanes] += static_cast<float>(x[i]) * static_cast<float>(y[i]);
        double sum = 0;
        for (const float one : sums) sum += static_cast<double>(one);
        dots.data<float>()[row] = static_cast<float>(sum);
      }
    });
  });
  return dots;
}

void scale_rows_inplace(Context& context, const TensorView& x, const TensorView& weights) {
  const detail::OpScope scope(context, "ms::scale_rows", x, weights);
  const int64_t rows = detail::num_rows(x), h = x.dim(-1);
  detail::check_size(weights, rows, "scale_rows: weights");
  detail::check_dtype(weights, core::DType::kFp32, "scale_rows: weights");
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(rows, detail::row_grain(h), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float weight = weights.data<float>()[row];
        T* const values = x.data<T>() + row * h;
        for (int64_t i = 0; i < h; ++i) values[i] = static_cast<T>(weight * static_cast<float>(values[i]));
      }
    });
  });
}

}  // namespace ms::ops
