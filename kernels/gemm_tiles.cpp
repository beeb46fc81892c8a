#include "kernels/detail/gemm_backends.h"
#include "kernels/detail/scratch.h"

namespace ms::kernels {
namespace {

class GemmScratch {
 public:
  float* packed_a(int64_t n) { return a_.floats(n); }
  float* packed_b(int64_t n) { return b_.floats(n); }
  float* sums(int64_t n) { return sums_.floats(n); }

 private:
  ScratchBuffer a_, b_, sums_;
};

}  // namespace
}  // namespace ms::kernels

#define MS_KERNEL_BODY "kernels/impl/gemm.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {
namespace {

std::string_view declines(const GemmProblem&) {
  return active_isa() == Isa::kScalar ? "register tiles do not pay without vector registers" : std::string_view();
}

void run(const GemmProblem& problem) {
  thread_local GemmScratch scratch;
  MS_DISPATCH(gemm_tiles(problem, scratch));
}

}  // namespace

const GemmImplementation kGemmTiles = {"tiles", declines, run};

}  // namespace ms::kernels
