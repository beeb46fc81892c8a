#include "kernels/bf16.h"
#include "kernels/detail/gemm_backends.h"

namespace ms::kernels {
namespace {

float element(const void* matrix, GemmType type, int64_t index) {
  return type == GemmType::kBf16 ? static_cast<float>(static_cast<const bf16*>(matrix)[index])
                                 : static_cast<const float*>(matrix)[index];
}

void run(const GemmProblem& problem) {
  for (int64_t i = 0; i < problem.m; ++i) {
    for (int64_t j = 0; j < problem.n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < problem.k; ++p) {
        const int64_t a_index = problem.transpose_a ? p * problem.lda + i : i * problem.lda + p;
        const int64_t b_index = problem.transpose_b ? j * problem.ldb + p : p * problem.ldb + j;
        sum += element(problem.a, problem.a_type, a_index) * element(problem.b, problem.b_type, b_index);
      }
      if (problem.c_type == GemmType::kBf16) {
        static_cast<bf16*>(problem.c)[i * problem.ldc + j] = bf16(sum);
      } else {
        float& target = static_cast<float*>(problem.c)[i * problem.ldc + j];
        target = problem.accumulate ? target + sum : sum;
      }
    }
  }
}

}  // namespace

const GemmImplementation kGemmNaive = {"naive", [](const GemmProblem&) { return std::string_view(); }, run};

}  // namespace ms::kernels
