#include "train/ops/linear_fp64.h"

#include <algorithm>
#include <vector>

#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

// A row as fp64.
void read_row(const TensorView& x, int64_t row, std::vector<double>& out) {
  const int64_t width = x.dim(-1);
  detail::with_type(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>() + row * width;
    for (int64_t e = 0; e < width; ++e) out[static_cast<size_t>(e)] = static_cast<float>(from[e]);
  });
}

std::vector<double> read_all(const TensorView& x) {
  std::vector<double> all(static_cast<size_t>(x.size()));
  read_row(x.reshaped({1, x.size()}), 0, all);
  return all;
}

// Four sums, so that their order is fixed and they are vectors.
double dot(const double* a, const double* b, int64_t n) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int64_t lane = 0; lane < 4; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace

Tensor linear_fp64(Context& context, const TensorView& x, const TensorView& weight) {
  const detail::OpScope scope(context, "ms::linear_fp64", x, weight);
  const int64_t in = weight.dim(1), out = weight.dim(0), rows = detail::num_rows(x);
  MS_CHECK(x.dim(-1) == in, "linear_fp64: x is ", core::cat(x.shape()), ", weight ", core::cat(weight.shape()));
  Tensor y(context.arena, core::DType::kFp32, detail::with_last(x.shape(), out), core::MemoryTag::kAct);
  const int64_t flops = 2 * rows * in * out;
  context.flops += flops;
  const auto kernel = scope.kernel(flops, x.size_bytes() + weight.size_bytes() + y.size_bytes());
  const std::vector<double> w = read_all(weight);
  context.pool.parallel_for(rows, detail::row_grain(in * out), [&](int64_t begin, int64_t end) {
    std::vector<double> row(static_cast<size_t>(in));
    for (int64_t r = begin; r < end; ++r) {
      read_row(x, r, row);
      for (int64_t o = 0; o < out; ++o)
        y.data<float>()[r * out + o] = static_cast<float>(dot(row.data(), w.data() + o * in, in));
    }
  });
  return y;
}

Tensor linear_fp64_dgrad(Context& context, const TensorView& dy, const TensorView& weight) {
  const detail::OpScope scope(context, "ms::linear_fp64_dgrad", dy, weight);
  const int64_t in = weight.dim(1), out = weight.dim(0), rows = detail::num_rows(dy);
  MS_CHECK(dy.dim(-1) == out, "linear_fp64_dgrad: dy is ", core::cat(dy.shape()), ", weight ",
           core::cat(weight.shape()));
  detail::check_dtype(dy, core::DType::kFp32, "linear_fp64_dgrad: dy");
  Tensor dx(context.arena, weight.dtype(), detail::with_last(dy.shape(), in), core::MemoryTag::kAct);
  const int64_t flops = 2 * rows * in * out;
  context.flops += flops;
  const auto kernel = scope.kernel(flops, dy.size_bytes() + weight.size_bytes() + dx.size_bytes());
  const std::vector<double> w = read_all(weight);
  detail::with_type(dx.dtype(), [&]<class T>() {
    context.pool.parallel_for(rows, detail::row_grain(in * out), [&](int64_t begin, int64_t end) {
      std::vector<double> sums(static_cast<size_t>(in));
      for (int64_t r = begin; r < end; ++r) {
        std::ranges::fill(sums, 0.0);
        for (int64_t o = 0; o < out; ++o) {
          const double factor = dy.data<float>()[r * out + o];
          for (int64_t e = 0; e < in; ++e) sums[static_cast<size_t>(e)] += factor * w[static_cast<size_t>(o * in + e)];
        }
        for (int64_t e = 0; e < in; ++e)
          dx.data<T>()[r * in + e] = static_cast<T>(static_cast<float>(sums[static_cast<size_t>(e)]));
      }
    });
  });
  return dx;
}

void linear_fp64_wgrad(Context& context, const TensorView& x, const TensorView& dy, const TensorView& main_grad) {
  const detail::OpScope scope(context, "ms::linear_fp64_wgrad", x, dy);
  const int64_t in = x.dim(-1), out = dy.dim(-1), rows = detail::num_rows(x);
  MS_CHECK(detail::num_rows(dy) == rows, "linear_fp64_wgrad: x is ", core::cat(x.shape()), ", dy ",
           core::cat(dy.shape()));
  detail::check_dtype(dy, core::DType::kFp32, "linear_fp64_wgrad: dy");
  detail::check_shape(main_grad, {out, in}, "linear_fp64_wgrad: main_grad");
  detail::check_dtype(main_grad, core::DType::kFp32, "linear_fp64_wgrad: main_grad");
  const int64_t flops = 2 * rows * in * out;
  context.flops += flops;
  const auto kernel = scope.kernel(flops, x.size_bytes() + dy.size_bytes() + 2 * main_grad.size_bytes());
  context.pool.parallel_for(out, 8, [&](int64_t begin, int64_t end) {
    std::vector<double> row(static_cast<size_t>(in)), sums(static_cast<size_t>((end - begin) * in));
    for (int64_t r = 0; r < rows; ++r) {
      read_row(x, r, row);
      for (int64_t o = begin; o < end; ++o) {
        const double factor = dy.data<float>()[r * out + o];
        double* const sum = sums.data() + (o - begin) * in;
        for (int64_t e = 0; e < in; ++e) sum[e] += factor * row[static_cast<size_t>(e)];
      }
    }
    float* const gradient = main_grad.data<float>() + begin * in;
    for (size_t i = 0; i < sums.size(); ++i) gradient[i] += static_cast<float>(sums[i]);
  });
}

}  // namespace ms::ops
