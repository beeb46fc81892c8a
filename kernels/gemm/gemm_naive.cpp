#include "kernels/detail/scratch.h"
#include "kernels/gemm/detail/gemm_backends.h"

namespace ms::kernels {
namespace {

void run(const GemmProblem& problem) {
  thread_local ScratchBuffer scratch;
  float* const sums = scratch.floats(problem.n);
  for (int64_t i = 0; i < problem.m; ++i) {
    for (int64_t j = 0; j < problem.n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < problem.k; ++p) {
        const int64_t a_index = problem.transpose_a ? p * problem.lda + i : i * problem.lda + p;
        const int64_t b_index = problem.transpose_b ? j * problem.ldb + p : p * problem.ldb + j;
        sum += gemm_element(problem.a, problem.a_type, a_index) * gemm_element(problem.b, problem.b_type, b_index);
      }
      if (problem.accumulate) sum += static_cast<const float*>(problem.c)[i * problem.ldc + j];
      sums[j] = sum;
    }
    finish_gemm(problem, i, 1, sums, GemmType::kFp32, 0);
  }
}

}  // namespace

const GemmImplementation kGemmNaive = {"naive", [](const GemmProblem&) { return std::string_view(); }, run};

}  // namespace ms::kernels
