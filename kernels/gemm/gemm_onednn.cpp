// oneDNN with one thread per call: each thread that calls it sets its own OpenMP thread count to one, only here.
#include <dnnl.h>

#include <array>
#include <atomic>
#include <dnnl.hpp>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "kernels/detail/scratch.h"
#include "kernels/gemm/detail/gemm_backends.h"
#include "kernels/isa.h"
#include "kernels/roofline.h"

// Weak: a libdnnl that was built with OpenMP (Debian's is) brings libgomp, and we must not link it to one that was not.
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

// Applies the epilogue after a product, while part of C is still in the caches.
void finish_in_place(const GemmProblem& problem) {
  if (problem.epilogue.any()) finish_gemm(problem, 0, problem.m, problem.c, problem.c_type, problem.ldc);
}

// With fewer rows, packing B takes longer than the product.
constexpr int64_t kFewRows = 8;

std::string_view declines_sgemm(const GemmProblem& problem) {
  if (problem.deterministic) return kDependsOnSplit;
  if (active_isa() == Isa::kScalar && cpu_supports(Isa::kAvx2)) return "MS_FORCE_ISA selects scalar code";
  if (problem.a_type != GemmType::kFp32 || problem.b_type != GemmType::kFp32 || problem.c_type != GemmType::kFp32) {
    return "fp32 only";
  }
  // Speed of "packed" relative to oneDNN on Zen 4, 21 products of 1024 tokens on one thread: 0.94 to 1.03, median 1.00;
  // whole steps of 124 million parameters 0.97 to 1.02.
  if (problem.m >= kFewRows && active_isa() != Isa::kScalar) return "packed is as fast, and does not allocate";
  return {};
}

void run_sgemm(const GemmProblem& problem) {
  hold_at_one_thread();
  const dnnl_status_t status =
      dnnl_sgemm(problem.transpose_a ? 'T' : 'N', problem.transpose_b ? 'T' : 'N', problem.m, problem.n, problem.k,
                 1.0F, static_cast<const float*>(problem.a), problem.lda, static_cast<const float*>(problem.b),
                 problem.ldb, problem.accumulate ? 1.0F : 0.0F, static_cast<float*>(problem.c), problem.ldc);
  if (status != dnnl_success) throw std::runtime_error("dnnl_sgemm: status " + std::to_string(status));
  finish_in_place(problem);
}

// Whether bf16 products are faster than fp32: by oneDNN's view of the CPU, which honours ONEDNN_MAX_CPU_ISA, and for
// AVX512_BF16 by measurement.
bool multiplies_bf16() {
  static const bool yes = [] {
    if (active_isa() < Isa::kAvx512) return false;
    switch (dnnl::get_effective_cpu_isa()) {
      case dnnl::cpu_isa::avx512_core_amx:
        return active_isa() == Isa::kAmx;  // otherwise it would use an ISA that was not selected
      case dnnl::cpu_isa::avx512_core_bf16:
        return bf16_dot_products_are_faster();
      default:
        return false;
    }
  }();
  return yes;
}

std::string_view declines_bf16(const GemmProblem& problem) {
  if (problem.deterministic) return kDependsOnSplit;
  if (!is_bf16(problem)) return "bf16 operands only";
  if (!multiplies_bf16()) return "the CPU does not multiply bf16 faster than fp32";
  return {};
}

dnnl::memory::desc describe(int64_t rows, int64_t columns, int64_t ld, bool transposed, GemmType type) {
  using dnnl::memory;
  return {memory::dims{rows, columns}, type == GemmType::kBf16 ? memory::data_type::bf16 : memory::data_type::f32,
          transposed ? memory::dims{1, ld} : memory::dims{ld, 1}};
}

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

std::atomic<int64_t> primitives_created{0};

// A primitive and its arguments, created once: creation takes 0.5 ms, or microseconds from oneDNN's own cache, and
// several allocations.
class Matmul {
 public:
  explicit Matmul(const GemmProblem& problem) {
    const auto a = describe(problem.m, problem.k, problem.lda, problem.transpose_a, GemmType::kBf16);
    const auto b = describe(problem.k, problem.n, problem.ldb, problem.transpose_b, GemmType::kBf16);
    const auto c = describe(problem.m, problem.n, problem.ldc, false, problem.c_type);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (problem.accumulate) {
      dnnl::post_ops operations;
      operations.append_sum(1.0F);
      attributes.set_post_ops(operations);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc descriptor(engine(), a, b, c, attributes);
#else
    const dnnl::matmul::primitive_desc descriptor(dnnl::matmul::desc(a, b, c), attributes, engine());
#endif
    primitive_ = dnnl::matmul(descriptor);
    ++primitives_created;
    const auto scratch = descriptor.scratchpad_desc();
    scratch_bytes_ = static_cast<int64_t>(scratch.get_size());
    arguments_ = {{DNNL_ARG_SRC, dnnl::memory(a, engine(), nullptr)},
                  {DNNL_ARG_WEIGHTS, dnnl::memory(b, engine(), nullptr)},
                  {DNNL_ARG_DST, dnnl::memory(c, engine(), nullptr)},
                  {DNNL_ARG_SCRATCHPAD, dnnl::memory(scratch, engine(), nullptr)}};
  }

  void run(const GemmProblem& problem, ScratchBuffer& scratch, dnnl::stream& stream) {
    arguments_[DNNL_ARG_SRC].set_data_handle(const_cast<void*>(problem.a));
    arguments_[DNNL_ARG_WEIGHTS].set_data_handle(const_cast<void*>(problem.b));
    arguments_[DNNL_ARG_DST].set_data_handle(problem.c);
    arguments_[DNNL_ARG_SCRATCHPAD].set_data_handle(scratch.floats((scratch_bytes_ + 3) / 4));
    primitive_.execute(stream, arguments_);
    stream.wait();
  }

 private:
  dnnl::matmul primitive_;
  int64_t scratch_bytes_ = 0;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// Everything that a primitive depends on.
using MatmulKey = std::array<int64_t, 10>;
MatmulKey key_of(const GemmProblem& p) {
  return {p.m,   p.n,           p.k,           p.lda,        p.ldb,
          p.ldc, p.transpose_a, p.transpose_b, p.accumulate, static_cast<int64_t>(p.c_type)};
}

void run_bf16(const GemmProblem& problem) {
  constexpr size_t kMaxKept = 512;  // bounds memory in a run whose shapes never repeat
  hold_at_one_thread();
  thread_local dnnl::stream stream(engine());
  thread_local ScratchBuffer scratch;
  thread_local std::map<MatmulKey, Matmul> kept;
  const MatmulKey key = key_of(problem);
  auto found = kept.find(key);
  if (found == kept.end()) {
    if (kept.size() >= kMaxKept) kept.clear();
    found = kept.emplace(key, Matmul(problem)).first;
  }
  found->second.run(problem, scratch, stream);
  finish_in_place(problem);
}

}  // namespace

const GemmImplementation kGemmOnednn = {"onednn", declines_sgemm, run_sgemm};
const GemmImplementation kGemmOnednnBf16 = {"onednn_bf16", declines_bf16, run_bf16};

int64_t onednn_primitives_created() { return primitives_created; }

}  // namespace ms::kernels
