#include "train/ops/norm.h"

#include <utility>

#include "kernels/norm.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/sum_over_rows.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

void check_weight(const TensorView& weight, const TensorView& x, const char* what) {
  detail::check_size(weight, x.dim(-1), what);
  detail::check_dtype(weight, x.dtype(), what);
}

void check_gradients(const TensorView& dy, const TensorView& x, const TensorView* dresidual) {
  detail::check_shape(dy, x.shape(), "norm backward: dy");
  detail::check_dtype(dy, x.dtype(), "norm backward: dy");
  if (dresidual == nullptr) return;
  detail::check_size(*dresidual, x.size(), "norm backward: dresidual");
  detail::check_dtype(*dresidual, x.dtype(), "norm backward: dresidual");
}

// Allocates fp32 [rows] if the statistic is requested.
float* make_statistic(Context& context, int64_t rows, Tensor* statistic) {
  if (statistic == nullptr) return nullptr;
  *statistic = Tensor(context.arena, core::DType::kFp32, {rows}, core::MemoryTag::kAct);
  return statistic->data<float>();
}

// Allocates dx unless `into` is given.
Tensor place_of_gradient(Context& context, const TensorView& x, Tensor into) {
  if (!into.defined()) return {context.arena, x.dtype(), x.shape(), core::MemoryTag::kAct};
  detail::check_shape(into, x.shape(), "norm backward: into");
  detail::check_dtype(into, x.dtype(), "norm backward: into");
  return into;
}

// Lines of dy that dx overwrites have just been read: they are in the caches.
kernels::Stores stores_of_gradient(const Tensor& dx, const TensorView& dy) {
  return dx.bytes() == dy.bytes() ? kernels::Stores::kCached : detail::stores_of(dx.size_bytes());
}

}  // namespace

Tensor rms_norm(Context& context, const TensorView& x, const TensorView& gamma, const NormParams& params,
                Tensor* rstd) {
  const detail::OpScope scope(context, "ms::rms_norm", x, gamma);
  const int64_t h = x.dim(-1), rows = detail::num_rows(x);
  check_weight(gamma, x, "rms_norm: gamma");
  Tensor y(context.arena, x.dtype(), x.shape(), core::MemoryTag::kAct);
  float* r = make_statistic(context, rows, rstd);
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  const kernels::Stores stores = detail::stores_of(y.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(rows, detail::row_grain(h), [&](int64_t begin, int64_t end) {
      kernels::rms_norm(x.data<T>() + begin * h, gamma.data<T>(), static_cast<float>(params.gamma_offset), end - begin,
                        h, static_cast<float>(params.epsilon), y.data<T>() + begin * h,
                        r == nullptr ? nullptr : r + begin, stores);
    });
  });
  return y;
}

Tensor rms_norm_backward(Context& context, const TensorView& dy, const TensorView& x, const TensorView& gamma,
                         const NormParams& params, const TensorView& rstd, const TensorView& dgamma,
                         const TensorView* dresidual, Tensor into) {
  const detail::OpScope scope(context, "ms::rms_norm_backward", dy, x, gamma);
  const int64_t h = x.dim(-1), rows = detail::num_rows(x);
  check_weight(gamma, x, "rms_norm_backward: gamma");
  check_gradients(dy, x, dresidual);
  detail::check_size(rstd, rows, "rms_norm_backward: rstd");
  detail::check_size(dgamma, h, "rms_norm_backward: dgamma");
  Tensor dx = place_of_gradient(context, x, std::move(into));
  const auto kernel = scope.kernel(-1, (dresidual != nullptr ? 4 : 3) * x.size_bytes());
  const kernels::Stores stores = stores_of_gradient(dx, dy);
  detail::with_type(x.dtype(), [&]<class T>() {
    detail::sum_over_rows(context, rows, h, {&dgamma}, [&](int64_t first, int64_t count, float* partial) {
      const int64_t offset = first * h;
      kernels::rms_norm_backward(dy.data<T>() + offset, x.data<T>() + offset, gamma.data<T>(),
                                 static_cast<float>(params.gamma_offset), rstd.data<float>() + first,
                                 dresidual != nullptr ? dresidual->data<T>() + offset : nullptr, count, h,
                                 dx.data<T>() + offset, partial, stores);
    });
  });
  return dx;
}

Tensor layer_norm(Context& context, const TensorView& x, const TensorView& gamma, const TensorView& beta,
                  const NormParams& params, NormStatistics* statistics) {
  const detail::OpScope scope(context, "ms::layer_norm", x, gamma);
  const int64_t h = x.dim(-1), rows = detail::num_rows(x);
  check_weight(gamma, x, "layer_norm: gamma");
  check_weight(beta, x, "layer_norm: beta");
  Tensor y(context.arena, x.dtype(), x.shape(), core::MemoryTag::kAct);
  float* m = make_statistic(context, rows, statistics == nullptr ? nullptr : &statistics->mean);
  float* r = make_statistic(context, rows, statistics == nullptr ? nullptr : &statistics->rstd);
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  const kernels::Stores stores = detail::stores_of(y.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(rows, detail::row_grain(h), [&](int64_t begin, int64_t end) {
      kernels::layer_norm(x.data<T>() + begin * h, gamma.data<T>(), static_cast<float>(params.gamma_offset),
                          beta.data<T>(), end - begin, h, static_cast<float>(params.epsilon), y.data<T>() + begin * h,
                          m == nullptr ? nullptr : m + begin, r == nullptr ? nullptr : r + begin, stores);
    });
  });
  return y;
}

Tensor layer_norm_backward(Context& context, const TensorView& dy, const TensorView& x, const TensorView& gamma,
                           const NormParams& params, const NormStatistics& statistics, const TensorView& dgamma,
                           const TensorView& dbeta, const TensorView* dresidual, Tensor into) {
  const detail::OpScope scope(context, "ms::layer_norm_backward", dy, x, gamma);
  const int64_t h = x.dim(-1), rows = detail::num_rows(x);
  check_weight(gamma, x, "layer_norm_backward: gamma");
  check_gradients(dy, x, dresidual);
  detail::check_size(statistics.mean, rows, "layer_norm_backward: mean");
  detail::check_size(statistics.rstd, rows, "layer_norm_backward: rstd");
  detail::check_size(dgamma, h, "layer_norm_backward: dgamma");
  detail::check_size(dbeta, h, "layer_norm_backward: dbeta");
  Tensor dx = place_of_gradient(context, x, std::move(into));
  const auto kernel = scope.kernel(-1, (dresidual != nullptr ? 4 : 3) * x.size_bytes());
  const kernels::Stores stores = stores_of_gradient(dx, dy);
  detail::with_type(x.dtype(), [&]<class T>() {
    detail::sum_over_rows(context, rows, h, {&dgamma, &dbeta}, [&](int64_t first, int64_t count, float* partial) {
      const int64_t offset = first * h;
      kernels::layer_norm_backward(dy.data<T>() + offset, x.data<T>() + offset, gamma.data<T>(),
                                   static_cast<float>(params.gamma_offset), statistics.mean.data<float>() + first,
                                   statistics.rstd.data<float>() + first,
                                   dresidual != nullptr ? dresidual->data<T>() + offset : nullptr, count, h,
                                   dx.data<T>() + offset, partial, partial + h, stores);
    });
  });
  return dx;
}

}  // namespace ms::ops
