#include "kernels/gemm/detail/gemm_backends.h"
#include "kernels/gemm/detail/gemm_scratch.h"
#include "kernels/gemm/packed_operand.h"
#include "kernels/progress.h"

#define MS_KERNEL_BODY "kernels/gemm/impl/gemm_amx.inl"
#include "kernels/impl/amx.h"

namespace ms::kernels {
namespace {

#if defined(__x86_64__)
std::string_view declines(const GemmProblem& problem) {
  if (active_isa() != Isa::kAmx) return "the CPU has no AMX tiles, or MS_FORCE_ISA excludes them";
  if (problem.a_type != GemmType::kBf16 || problem.b_type != GemmType::kBf16) return "bf16 operands only";
  if (problem.c_type == GemmType::kFp16) return "fp16 results are not supported";
#if MS_WITH_ONEDNN
  constexpr int64_t kFewRows = 16;  // same as in gemm_bf16_dot.cpp
  if (!problem.deterministic && problem.m < kFewRows && problem.packed_b == nullptr) return "fewer than 16 rows";
#endif
  return {};
}

void run(const GemmProblem& problem) {
  thread_local GemmScratch scratch;
  amx::gemm_amx(problem, scratch);
}
#else
std::string_view declines(const GemmProblem&) { return "the CPU has no AMX tiles"; }
void run(const GemmProblem&) {}
#endif

}  // namespace

void pack_amx_operand(const GemmProblem& problem, int64_t begin, int64_t end, float* words) {
#if defined(__x86_64__)
  amx::pack_for_amx(problem, begin, end, words);
#else
  (void)problem, (void)begin, (void)end, (void)words;
#endif
}

const GemmImplementation kGemmAmx = {"amx", declines, run};

}  // namespace ms::kernels
