// The reference for bf16 products: oneDNN's matmul with its second operand in the layout that oneDNN chooses, reordered
// before the clock starts, on one thread.
#pragma once

#include <dnnl.hpp>
#include <unordered_map>

#include "kernels/gemm/gemm.h"

// Weak, as in kernels/gemm/gemm_onednn.cpp: libdnnl may bring OpenMP.
extern "C" void omp_set_num_threads(int) __attribute__((weak));

namespace ms::bench {

class PrepackedMatmul {
 public:
  // bf16 operands, result in problem.c, which accumulates if problem does. Keeps pointers to problem's operands.
  explicit PrepackedMatmul(const kernels::GemmProblem& problem) {
    if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
    using dnnl::memory;
    using Type = memory::data_type;
    const auto plain = [](int64_t rows, int64_t columns, int64_t ld, bool transposed, Type type) {
      return memory::desc({rows, columns}, type, transposed ? memory::dims{1, ld} : memory::dims{ld, 1});
    };
    const Type c_type = problem.c_type == kernels::GemmType::kBf16 ? Type::bf16 : Type::f32;
    const auto a = plain(problem.m, problem.k, problem.lda, problem.transpose_a, Type::bf16);
    const auto b = plain(problem.k, problem.n, problem.ldb, problem.transpose_b, Type::bf16);
    const auto c = plain(problem.m, problem.n, problem.ldc, false, c_type);
    const memory::desc any({problem.k, problem.n}, Type::bf16, memory::format_tag::any);
    dnnl::primitive_attr attributes;
    if (problem.accumulate) {
      dnnl::post_ops operations;
      operations.append_sum(1.0F);
      attributes.set_post_ops(operations);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc descriptor(engine_, a, any, c, attributes);
#else
    const dnnl::matmul::primitive_desc descriptor(dnnl::matmul::desc(a, any, c), attributes, engine_);
#endif
    matmul_ = dnnl::matmul(descriptor);
    memory lying(b, engine_, const_cast<void*>(problem.b)), packed(descriptor.weights_desc(), engine_);
    dnnl::reorder(lying, packed).execute(stream_, lying, packed);
    stream_.wait();
    arguments_ = {{DNNL_ARG_SRC, memory(a, engine_, const_cast<void*>(problem.a))},
                  {DNNL_ARG_WEIGHTS, packed},
                  {DNNL_ARG_DST, memory(c, engine_, problem.c)}};
  }

  void run() {
    matmul_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace ms::bench
