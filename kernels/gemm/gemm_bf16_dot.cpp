#include "kernels/gemm/detail/gemm_backends.h"
#include "kernels/gemm/detail/gemm_scratch.h"
#include "kernels/gemm/packed_operand.h"
#include "kernels/progress.h"
#include "kernels/roofline.h"

#define MS_KERNEL_BODY "kernels/gemm/impl/gemm_bf16_dot.inl"
#include "kernels/impl/avx512_bf16.h"

namespace ms::kernels {
namespace {

// With fewer rows, packing B takes longer than the whole oneDNN product, which reads B in place. Speed of bf16_dot
// relative to oneDNN on Zen 4, layers of 768 and 4096, weights in memory: 8 rows 0.71 to 1.49; 16 to 96 rows 1.0
// median, 0.78 minimum (forward products of 4096 x 4096); 21 products of 1024 tokens 0.93 to 1.19, median 1.02.
constexpr int64_t kFewRows = 16;

#if defined(__x86_64__)
// Why oneDNN's bf16 product is preferred; empty if it is not.
std::string_view leaves_to_onednn(const GemmProblem& problem) {
#if MS_WITH_ONEDNN
  if (problem.m < kFewRows && problem.packed_b == nullptr) return "fewer than 16 rows";
#endif
  (void)problem;
  return {};
}

std::string_view declines(const GemmProblem& problem) {
  if (problem.a_type != GemmType::kBf16 || problem.b_type != GemmType::kBf16) return "bf16 operands only";
  if (problem.c_type == GemmType::kFp16) return "fp16 results are not supported";
  if (!bf16_dot_products_are_faster()) return "the CPU has no bf16 dot products that are faster than fp32";
  return problem.deterministic ? std::string_view() : leaves_to_onednn(problem);
}

void run(const GemmProblem& problem) {
  thread_local GemmScratch scratch;
  avx512_bf16::gemm_bf16_dot(problem, scratch);
}
#else
std::string_view declines(const GemmProblem&) { return "the CPU has no bf16 dot products"; }
void run(const GemmProblem&) {}
#endif

}  // namespace

bool bf16_dot_takes_bf16(bool deterministic) {
  GemmProblem problem;
  problem.a_type = problem.b_type = GemmType::kBf16;
  problem.m = kFewRows;
  problem.deterministic = deterministic;
  return declines(problem).empty();
}

void pack_bf16_dot_operand(const GemmProblem& problem, int64_t begin, int64_t end, float* words) {
#if defined(__x86_64__)
  avx512_bf16::pack_for_bf16_dot(problem, begin, end, words);
#else
  (void)problem, (void)begin, (void)end, (void)words;
#endif
}

const GemmImplementation kGemmBf16Dot = {"bf16_dot", declines, run};

}  // namespace ms::kernels
