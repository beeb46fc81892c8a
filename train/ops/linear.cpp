#include "train/ops/linear.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/gemm/gemm.h"
#include "train/ops/detail/parallel_gemm.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

void multiply(Context& context, const detail::OpScope& scope, const TensorView& x, const TensorView& weight,
              const TensorView& y, const LinearEpilogue& epilogue, PackedWeight* packed) {
  const int64_t in = weight.dim(1), out = weight.dim(0);
  MS_CHECK(x.dim(-1) == in, "linear: x is ", core::cat(x.shape()), ", weight ", core::cat(weight.shape()));
  detail::check_shape(y, detail::with_last(x.shape(), out), "linear: y");
  kernels::GemmProblem problem;
  problem.transpose_b = true;
  problem.m = detail::num_rows(x), problem.n = out, problem.k = in;
  problem.a = x.bytes(), problem.a_type = detail::gemm_type(x), problem.lda = in;
  problem.b = weight.bytes(), problem.b_type = detail::gemm_type(weight), problem.ldb = in;
  if (packed != nullptr && x.dtype() == weight.dtype()) {
    problem.packed_b = packed->read(context, weight, PackedWeight::Product::kForward);
  }
  problem.c = y.bytes(), problem.c_type = detail::gemm_type(y), problem.ldc = out;
  problem.epilogue.activation = epilogue.activation;
  if (epilogue.bias != nullptr) {
    detail::check_size(*epilogue.bias, out, "linear: bias");
    detail::check_dtype(*epilogue.bias, y.dtype(), "linear: bias");
    problem.epilogue.bias = epilogue.bias->bytes();
  }
  if (epilogue.residual != nullptr) {
    detail::check_shape(*epilogue.residual, y.shape(), "linear: residual");
    detail::check_dtype(*epilogue.residual, y.dtype(), "linear: residual");
    problem.epilogue.residual = epilogue.residual->bytes(), problem.epilogue.ld_residual = out;
  }
  const int64_t residual_bytes = epilogue.residual != nullptr ? epilogue.residual->size_bytes() : 0;
  detail::parallel_gemm(context, scope, problem,
                        x.size_bytes() + weight.size_bytes() + y.size_bytes() + residual_bytes);
}

Tensor product_of(Context& context, const TensorView& x, const TensorView& weight, core::DType dtype) {
  return {context.arena, dtype, detail::with_last(x.shape(), weight.dim(0)), core::MemoryTag::kAct};
}

}  // namespace

std::string explain_gemm(const Context& context, core::DType dtype) {
  kernels::GemmType type = kernels::GemmType::kFp32;
  if (dtype == core::DType::kBf16) type = kernels::GemmType::kBf16;
  if (dtype == core::DType::kFp16) type = kernels::GemmType::kFp16;
  kernels::GemmProblem problem;
  problem.m = problem.n = problem.k = problem.lda = problem.ldb = problem.ldc = 256;
  problem.a_type = problem.b_type = problem.c_type = type;
  problem.deterministic = context.deterministic;
  std::string why;
  for (const kernels::GemmImplementation* implementation : kernels::gemm_implementations()) {
    const std::string_view reason = implementation->declines(problem);
    if (reason.empty()) break;
    why += core::cat("; ", implementation->name, " passed over: ", reason);
  }
  return core::cat("gemm ", core::dtype_name(dtype), ": ", kernels::choose_gemm(problem).name, why);
}

Tensor linear(Context& context, const TensorView& x, const TensorView& weight, const LinearEpilogue& epilogue,
              PackedWeight* packed) {
  Tensor y = product_of(context, x, weight, x.dtype());
  linear_into(context, x, weight, y, epilogue, packed);
  return y;
}

void linear_into(Context& context, const TensorView& x, const TensorView& weight, const TensorView& y,
                 const LinearEpilogue& epilogue, PackedWeight* packed) {
  const detail::OpScope scope(context, "ms::linear", x, weight);
  detail::check_dtype(y, x.dtype(), "linear: y");
  multiply(context, scope, x, weight, y, epilogue, packed);
}

void add_bias_inplace(Context& context, const TensorView& y, const TensorView& bias) {
  const detail::OpScope scope(context, "ms::add_bias", y, bias);
  const int64_t out = y.dim(-1);
  detail::check_size(bias, out, "add_bias: bias");
  detail::check_dtype(bias, y.dtype(), "add_bias: bias");
  const auto kernel = scope.kernel(-1, 2 * y.size_bytes());
  detail::with_type(y.dtype(), [&]<class T>() {
    context.pool.parallel_for(detail::num_rows(y), detail::row_grain(out), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* target = y.data<T>() + row * out;
        kernels::add(target, bias.data<T>(), out, target);
      }
    });
  });
}

Tensor linear_fp32(Context& context, const TensorView& x, const TensorView& weight, PackedWeight* packed) {
  const detail::OpScope scope(context, "ms::linear_fp32", x, weight);
  Tensor y = product_of(context, x, weight, core::DType::kFp32);
  multiply(context, scope, x, weight, y, {}, packed);
  return y;
}

Tensor linear_dgrad(Context& context, const TensorView& dy, const TensorView& weight, PackedWeight* packed) {
  Tensor dx(context.arena, weight.dtype(), detail::with_last(dy.shape(), weight.dim(1)), core::MemoryTag::kAct);
  linear_dgrad_into(context, dy, weight, dx, packed);
  return dx;
}

void linear_dgrad_into(Context& context, const TensorView& dy, const TensorView& weight, const TensorView& dx,
                       PackedWeight* packed) {
  const detail::OpScope scope(context, "ms::linear_dgrad", dy, weight);
  const int64_t in = weight.dim(1), out = weight.dim(0);
  MS_CHECK(dy.dim(-1) == out, "linear_dgrad: dy is ", core::cat(dy.shape()), ", weight ", core::cat(weight.shape()));
  detail::check_shape(dx, detail::with_last(dy.shape(), in), "linear_dgrad: dx");
  detail::check_dtype(dx, weight.dtype(), "linear_dgrad: dx");
  kernels::GemmProblem problem;
  problem.m = detail::num_rows(dy), problem.n = in, problem.k = out;
  problem.a = dy.bytes(), problem.a_type = detail::gemm_type(dy), problem.lda = out;
  problem.b = weight.bytes(), problem.b_type = detail::gemm_type(weight), problem.ldb = in;
  if (packed != nullptr && dy.dtype() == weight.dtype()) {
    problem.packed_b = packed->read(context, weight, PackedWeight::Product::kGradient);
  }
  problem.c = dx.bytes(), problem.c_type = detail::gemm_type(dx), problem.ldc = in;
  detail::parallel_gemm(context, scope, problem, dy.size_bytes() + weight.size_bytes() + dx.size_bytes());
}

namespace {

// sum += x, of the same shape. sum: fp32.
void accumulate(Context& context, const TensorView& x, const TensorView& sum) {
  const detail::OpScope scope(context, "ms::accumulate", x);
  const auto kernel = scope.kernel(-1, x.size_bytes() + 2 * sum.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(x.size(), detail::kGrainElements, [&](int64_t begin, int64_t end) {
      kernels::accumulate(sum.data<float>() + begin, x.data<T>() + begin, end - begin);
    });
  });
}

}  // namespace

void linear_wgrad(Context& context, const TensorView& x, const TensorView& dy, const TensorView& main_grad,
                  WeightGradientSum sum) {
  const detail::OpScope scope(context, "ms::linear_wgrad", x, dy);
  const int64_t in = x.dim(-1), out = dy.dim(-1), tokens = detail::num_rows(x);
  MS_CHECK(detail::num_rows(dy) == tokens, "linear_wgrad: x is ", core::cat(x.shape()), ", dy ", core::cat(dy.shape()));
  detail::check_shape(main_grad, {out, in}, "linear_wgrad: main_grad");
  detail::check_dtype(main_grad, core::DType::kFp32, "linear_wgrad: main_grad");
  kernels::GemmProblem problem;
  problem.transpose_a = true;
  problem.m = out, problem.n = in, problem.k = tokens;
  problem.a = dy.bytes(), problem.a_type = detail::gemm_type(dy), problem.lda = out;
  problem.b = x.bytes(), problem.b_type = detail::gemm_type(x), problem.ldb = in;
  problem.ldc = in;
  if (sum == WeightGradientSum::kInProduct) {
    problem.c = main_grad.bytes();
    problem.accumulate = true;
    detail::parallel_gemm(context, scope, problem, x.size_bytes() + dy.size_bytes() + 2 * main_grad.size_bytes());
    return;
  }
  const Tensor product(context.arena, x.dtype(), {out, in}, core::MemoryTag::kTmp);
  problem.c = product.bytes(), problem.c_type = detail::gemm_type(product);
  detail::parallel_gemm(context, scope, problem, x.size_bytes() + dy.size_bytes() + product.size_bytes());
  accumulate(context, product, main_grad);
}

void bias_grad(Context& context, const TensorView& dy, const TensorView& main_grad) {
  const detail::OpScope scope(context, "ms::bias_grad", dy);
  const int64_t out = dy.dim(-1), rows = detail::num_rows(dy);
  detail::check_size(main_grad, out, "bias_grad: main_grad");
  const auto kernel = scope.kernel(-1, dy.size_bytes());
  detail::with_type(dy.dtype(), [&]<class T>() {
    // Threads are split over columns: every sum runs over the rows in order.
    context.pool.parallel_for(out, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = 0; row < rows; ++row) {
        kernels::accumulate(main_grad.data<float>() + begin, dy.data<T>() + row * out + begin, end - begin);
      }
    });
  });
}

}  // namespace ms::ops
