// Tensors as operands of kernels/gemm/gemm.h, and the division of a product into parts for threads.
#pragma once

#include "core/tensor.h"
#include "kernels/gemm/gemm.h"
#include "train/ops/detail/typed.h"

namespace ms::ops::detail {

inline kernels::GemmType gemm_type(const core::TensorView& x) {
  if (x.dtype() == core::DType::kBf16) return kernels::GemmType::kBf16;
  if (x.dtype() == core::DType::kFp16) return kernels::GemmType::kFp16;
  check_dtype(x, core::DType::kFp32, "GEMM operand");
  return kernels::GemmType::kFp32;
}

inline const void* advance(const void* data, kernels::GemmType type, int64_t elements) {
  return static_cast<const std::byte*>(data) + elements * kernels::gemm_type_bytes(type);
}

// Rows and columns that fill whole register tiles of every instruction set (6 or 12 rows, 16 or 32 columns).
inline constexpr int64_t kRowGrain = 12, kColumnGrain = 32;

inline kernels::GemmProblem rows_of(kernels::GemmProblem problem, int64_t begin, int64_t end) {
  problem.m = end - begin;
  problem.a = advance(problem.a, problem.a_type, problem.transpose_a ? begin : begin * problem.lda);
  problem.c = const_cast<void*>(advance(problem.c, problem.c_type, begin * problem.ldc));
  kernels::GemmEpilogue& epilogue = problem.epilogue;
  if (epilogue.residual != nullptr) {
    epilogue.residual = advance(epilogue.residual, problem.c_type, begin * epilogue.ld_residual);
  }
  return problem;
}

inline kernels::GemmProblem columns_of(kernels::GemmProblem problem, int64_t begin, int64_t end) {
  problem.n = end - begin;
  problem.packed_column += begin;
  problem.b = advance(problem.b, problem.b_type, problem.transpose_b ? begin * problem.ldb : begin);
  problem.c = const_cast<void*>(advance(problem.c, problem.c_type, begin));
  for (const void** beside : {&problem.epilogue.bias, &problem.epilogue.residual}) {
    if (*beside != nullptr) *beside = advance(*beside, problem.c_type, begin);
  }
  return problem;
}

}  // namespace ms::ops::detail
