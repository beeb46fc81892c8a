#include "kernels/gemm/gemm.h"

#include <stdexcept>
#include <vector>

#include "kernels/gemm/detail/gemm_backends.h"

namespace ms::kernels {
namespace {

constexpr const GemmImplementation* kImplementations[] = {
    &kGemmAmx,        &kGemmBf16Dot,
#if MS_WITH_ONEDNN
    &kGemmOnednnBf16,
#endif
    &kGemmSkinny,
#if MS_WITH_ONEDNN
    &kGemmOnednn,
#endif
    &kGemmPacked,     &kGemmEigen,   &kGemmNaive,
};

// Writes the result of k = 0: the epilogue applied to zeros.
void finish_zeros(const GemmProblem& problem) {
  const std::vector<float> zeros(static_cast<size_t>(problem.n));
  finish_gemm(problem, 0, problem.m, zeros.data(), GemmType::kFp32, 0);
}

}  // namespace

std::span<const GemmImplementation* const> gemm_implementations() { return kImplementations; }

const GemmImplementation& choose_gemm(const GemmProblem& problem) {
  for (const auto* implementation : kImplementations) {
    if (implementation->declines(problem).empty()) return *implementation;
  }
  throw std::logic_error("gemm: every implementation declined");
}

void gemm(const GemmProblem& problem) {
  if (problem.accumulate && problem.c_type != GemmType::kFp32) {
    throw std::invalid_argument("gemm: accumulation requires an fp32 C");
  }
  if (problem.accumulate && problem.epilogue.any()) {
    throw std::invalid_argument("gemm: accumulation cannot be combined with an epilogue");
  }
  bool has_bf16 = false, has_fp16 = false;
  for (const GemmType type : {problem.a_type, problem.b_type, problem.c_type}) {
    has_bf16 = has_bf16 || type == GemmType::kBf16;
    has_fp16 = has_fp16 || type == GemmType::kFp16;
  }
  if (has_bf16 && has_fp16) throw std::invalid_argument("gemm: bf16 and fp16 cannot be mixed in one product");
  if (problem.m <= 0 || problem.n <= 0) return;
  if (problem.k <= 0) {
    if (!problem.accumulate) finish_zeros(problem);
    return;
  }
  choose_gemm(problem).run(problem);
}

int64_t gemm_primitives_created() {
#if MS_WITH_ONEDNN
  return onednn_primitives_created();
#else
  return 0;
#endif
}

}  // namespace ms::kernels
