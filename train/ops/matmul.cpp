#include "train/ops/matmul.h"

#include "train/ops/detail/parallel_gemm.h"

namespace ms::ops {

void matmul_into(Context& context, const core::TensorView& a, const core::TensorView& b, const core::TensorView& c,
                 const MatmulParams& params) {
  const detail::OpScope scope(context, "ms::matmul", a, b);
  MS_CHECK(b.shape().size() == 2, "matmul: b is ", core::cat(b.shape()), ", expected two axes");
  const int64_t k = b.dim(params.transpose_b ? 1 : 0), n = b.dim(params.transpose_b ? 0 : 1);
  MS_CHECK(a.dim(-1) == k, "matmul: a is ", core::cat(a.shape()), ", b ", core::cat(b.shape()));
  detail::check_shape(c, detail::with_last(a.shape(), n), "matmul: c");
  kernels::GemmProblem problem;
  problem.transpose_b = params.transpose_b;
  problem.m = detail::num_rows(a), problem.n = n, problem.k = k;
  problem.a = a.bytes(), problem.a_type = detail::gemm_type(a), problem.lda = k;
  problem.b = b.bytes(), problem.b_type = detail::gemm_type(b), problem.ldb = b.dim(1);
  problem.c = c.bytes(), problem.c_type = detail::gemm_type(c), problem.ldc = n;
  problem.epilogue.activation = params.activation;
  if (params.bias != nullptr) {
    detail::check_size(*params.bias, n, "matmul: bias");
    detail::check_dtype(*params.bias, c.dtype(), "matmul: bias");
    problem.epilogue.bias = params.bias->bytes();
  }
  detail::parallel_gemm(context, scope, problem, a.size_bytes() + b.size_bytes() + c.size_bytes());
}

}  // namespace ms::ops
