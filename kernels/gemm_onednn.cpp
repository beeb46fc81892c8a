// oneDNN, one thread a call: its OpenMP is held at one in every thread that comes here, and only here.
#include <dnnl.h>

#include <dnnl.hpp>
#include <stdexcept>
#include <string>

#include "kernels/detail/gemm_backends.h"
#include "kernels/isa.h"

// libdnnl brings libgomp where it was built with it (Debian's is), and we must not bring it where it was not.
extern "C" void omp_set_num_threads(int) __attribute__((weak));

namespace ms::kernels {
namespace {

void hold_at_one_thread() {
  thread_local const bool held = [] {
    if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
    return true;
  }();
  (void)held;
}

bool is_bf16(const GemmProblem& problem) {
  return problem.a_type == GemmType::kBf16 && problem.b_type == GemmType::kBf16;
}

std::string_view declines_sgemm(const GemmProblem& problem) {
  if (problem.any_split) return kDependsOnSplit;
  if (active_isa() == Isa::kScalar && cpu_supports(Isa::kAvx2)) return "scalar code is asked for";
  if (problem.a_type != GemmType::kFp32 || problem.b_type != GemmType::kFp32 || problem.c_type != GemmType::kFp32) {
    return "fp32 only";
  }
  return {};
}

void run_sgemm(const GemmProblem& problem) {
  hold_at_one_thread();
  const dnnl_status_t status =
      dnnl_sgemm(problem.transpose_a ? 'T' : 'N', problem.transpose_b ? 'T' : 'N', problem.m, problem.n, problem.k,
                 1.0F, static_cast<const float*>(problem.a), problem.lda, static_cast<const float*>(problem.b),
                 problem.ldb, problem.accumulate ? 1.0F : 0.0F, static_cast<float*>(problem.c), problem.ldc);
  if (status != dnnl_success) throw std::runtime_error("dnnl_sgemm: status " + std::to_string(status));
}

// Whether the CPU multiplies bf16: oneDNN's own view of it, which honours ONEDNN_MAX_CPU_ISA.
bool multiplies_bf16() {
  static const bool yes = [] {
    if (active_isa() != Isa::kAvx512) return false;
    switch (dnnl::get_effective_cpu_isa()) {
      case dnnl::cpu_isa::avx512_core_bf16:
      case dnnl::cpu_isa::avx512_core_amx:
        return true;
      default:
        return false;
    }
  }();
  return yes;
}

std::string_view declines_bf16(const GemmProblem& problem) {
  if (problem.any_split) return kDependsOnSplit;
  if (!is_bf16(problem)) return "bf16 operands only";
  if (!multiplies_bf16()) return "the CPU does not multiply bf16";
  return {};
}

dnnl::memory::desc describe(int64_t rows, int64_t columns, int64_t ld, bool transposed, GemmType type) {
  using dnnl::memory;
  return {memory::dims{rows, columns}, type == GemmType::kBf16 ? memory::data_type::bf16 : memory::data_type::f32,
          transposed ? memory::dims{1, ld} : memory::dims{ld, 1}};
}

void run_bf16(const GemmProblem& problem) {
  hold_at_one_thread();
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  thread_local dnnl::stream stream(engine);
  const auto a = describe(problem.m, problem.k, problem.lda, problem.transpose_a, GemmType::kBf16);
  const auto b = describe(problem.k, problem.n, problem.ldb, problem.transpose_b, GemmType::kBf16);
  const auto c = describe(problem.m, problem.n, problem.ldc, false, problem.c_type);
  dnnl::primitive_attr attributes;
  if (problem.accumulate) {
    dnnl::post_ops operations;
    operations.append_sum(1.0F);
    attributes.set_post_ops(operations);
  }
  // Creation is 0.5 ms the first time and microseconds from oneDNN's own cache after it (keyed by all of the above).
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc descriptor(engine, a, b, c, attributes);
#else
  const dnnl::matmul::primitive_desc descriptor(dnnl::matmul::desc(a, b, c), attributes, engine);
#endif
  dnnl::matmul(descriptor)
      .execute(stream, {{DNNL_ARG_SRC, dnnl::memory(a, engine, const_cast<void*>(problem.a))},
                        {DNNL_ARG_WEIGHTS, dnnl::memory(b, engine, const_cast<void*>(problem.b))},
                        {DNNL_ARG_DST, dnnl::memory(c, engine, problem.c)}});
  stream.wait();
}

}  // namespace

const GemmImplementation kGemmOnednn = {"onednn", declines_sgemm, run_sgemm};
const GemmImplementation kGemmOnednnBf16 = {"onednn_bf16", declines_bf16, run_bf16};

}  // namespace ms::kernels
