// Eigen at the compiler's baseline (SSE2 on x86-64, NEON on AArch64): used where our vector code does not run. Not
// compiled with -mavx2: the linker could pick inline functions compiled here for code that runs on older CPUs.
#include <Eigen/Core>

#include "kernels/detail/scratch.h"
#include "kernels/gemm/detail/gemm_backends.h"

namespace ms::kernels {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
using ConstMap = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>;
using Map = Eigen::Map<Matrix, Eigen::Unaligned, Stride>;

// The operand as fp32: the data itself, or a dense fp32 copy of 16-bit data in `copy`.
ConstMap operand(const void* data, GemmType type, int64_t rows, int64_t columns, int64_t ld, ScratchBuffer& copy) {
  if (type == GemmType::kFp32) return {static_cast<const float*>(data), rows, columns, Stride(ld)};
  float* converted = copy.floats(rows * columns);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      converted[i * columns + j] = gemm_element(data, type, i * ld + j);
    }
  }
  return {converted, rows, columns, Stride(columns)};
}

template <class A, class B>
void multiply(const A& a, const B& b, bool accumulate, Map c) {
  if (accumulate) {
    c.noalias() += a * b;
  } else {
    c.noalias() = a * b;
  }
}

void run(const GemmProblem& problem) {
  thread_local ScratchBuffer a_copy, b_copy, c_copy;
  const int64_t m = problem.m, n = problem.n, k = problem.k;
  const ConstMap a =
      operand(problem.a, problem.a_type, problem.transpose_a ? k : m, problem.transpose_a ? m : k, problem.lda, a_copy);
  const ConstMap b =
      operand(problem.b, problem.b_type, problem.transpose_b ? n : k, problem.transpose_b ? k : n, problem.ldb, b_copy);
  const bool narrow = problem.c_type != GemmType::kFp32;
  const Map c(narrow ? c_copy.floats(m * n) : static_cast<float*>(problem.c), m, n, Stride(narrow ? n : problem.ldc));
  if (problem.transpose_a && problem.transpose_b) {
    multiply(a.transpose(), b.transpose(), problem.accumulate, c);
  } else if (problem.transpose_a) {
    multiply(a.transpose(), b, problem.accumulate, c);
  } else if (problem.transpose_b) {
    multiply(a, b.transpose(), problem.accumulate, c);
  } else {
    multiply(a, b, problem.accumulate, c);
  }
  if (narrow || problem.epilogue.any()) finish_gemm(problem, 0, m, c.data(), GemmType::kFp32, narrow ? n : problem.ldc);
}

std::string_view declines(const GemmProblem& problem) {
  return problem.deterministic ? kDependsOnSplit : std::string_view();
}

}  // namespace

const GemmImplementation kGemmEigen = {"eigen", declines, run};

}  // namespace ms::kernels
