#include "kernels/gemm/detail/gemm_backends.h"
#include "kernels/gemm/detail/gemm_scratch.h"
#include "kernels/gemm/packed_operand.h"
#include "kernels/progress.h"

#define MS_KERNEL_BODY "kernels/gemm/impl/gemm_packed.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {
namespace {

constexpr std::string_view kNoVectors = "register tiles are slow without vector registers";

std::string_view declines(const GemmProblem&) { return active_isa() == Isa::kScalar ? kNoVectors : std::string_view(); }

GemmScratch& scratch_of_this_thread() {
  thread_local GemmScratch scratch;
  return scratch;
}

void run(const GemmProblem& problem) { MS_DISPATCH(gemm_packed(problem, scratch_of_this_thread())); }

std::string_view declines_skinny(const GemmProblem& problem) {
  if (active_isa() == Isa::kScalar) return kNoVectors;
  if (problem.packed_b != nullptr) return kIsPacked;
  const int64_t fewest = problem.transpose_b ? scalar::kSkinnyMinRowsTransposed : scalar::kSkinnyMinRows;
  if (problem.m >= fewest && problem.m <= scalar::kSkinnyMaxRows) return {};
  return problem.transpose_b ? "not 16 to 64 rows" : "not 8 to 64 rows";
}

void run_skinny(const GemmProblem& problem) { MS_DISPATCH(gemm_skinny(problem, scratch_of_this_thread())); }

}  // namespace

void pack_fp32_operand(const GemmProblem& problem, int64_t begin, int64_t end, float* words) {
  MS_DISPATCH(pack_for_fp32(problem, begin, end, words));
}

void finish_gemm(const GemmProblem& problem, int64_t row, int64_t rows, const void* sums, GemmType type, int64_t ld) {
  MS_DISPATCH(finish_rows(problem, row, rows, sums, type, ld));
}

const GemmImplementation kGemmPacked = {"packed", declines, run};
const GemmImplementation kGemmSkinny = {"skinny", declines_skinny, run_skinny};

}  // namespace ms::kernels
