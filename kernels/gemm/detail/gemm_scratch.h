// Per-thread buffers of the packed implementations in kernels/gemm/gemm.h.
#pragma once

#include "kernels/detail/scratch.h"

namespace ms::kernels {

class GemmScratch {
 public:
  float* packed_a(int64_t n) { return a_.floats(n); }
  float* packed_b(int64_t n) { return b_.floats(n); }
  float* sums(int64_t n) { return sums_.floats(n); }

 private:
  ScratchBuffer a_, b_, sums_;
};

}  // namespace ms::kernels
