#include "train/ops/swiglu.h"

#include "kernels/activation.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {

using core::Tensor;
using core::TensorView;

Tensor swiglu(Context& context, const TensorView& x) {
  const detail::OpScope scope(context, "ms::swiglu", x);
  MS_CHECK(x.dim(-1) % 2 == 0, "swiglu: x is ", core::cat(x.shape()), ", expected [.., 2f]");
  const int64_t f = x.dim(-1) / 2;
  Tensor y(context.arena, x.dtype(), detail::with_last(x.shape(), f), core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, x.size_bytes() + y.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(detail::num_rows(x), detail::row_grain(f), [&](int64_t begin, int64_t end) {
      kernels::swiglu(x.data<T>() + begin * 2 * f, end - begin, f, y.data<T>() + begin * f);
    });
  });
  return y;
}

Tensor swiglu_backward(Context& context, const TensorView& dy, const TensorView& x) {
  const detail::OpScope scope(context, "ms::swiglu_backward", dy, x);
  const int64_t f = dy.dim(-1);
  detail::check_shape(x, detail::with_last(dy.shape(), 2 * f), "swiglu_backward: x");
  detail::check_dtype(x, dy.dtype(), "swiglu_backward: x");
  Tensor dx(context.arena, x.dtype(), x.shape(), core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, dy.size_bytes() + 2 * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(detail::num_rows(x), detail::row_grain(f), [&](int64_t begin, int64_t end) {
      kernels::swiglu_backward(dy.data<T>() + begin * f, x.data<T>() + begin * 2 * f, end - begin, f,
                               dx.data<T>() + begin * 2 * f);
    });
  });
  return dx;
}

}  // namespace ms::ops
