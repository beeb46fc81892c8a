// Rotary position embedding (Su et al. 2021). T: float, bf16 or fp16.
#pragma once

#include <cstdint>

namespace ms::kernels {

enum class RopePairs : uint8_t {
  kHalves,      // element i with element i + dim/2 (Megatron, most Hugging Face models)
  kNeighbours,  // element 2i with element 2i + 1 (the paper; Megatron's --rotary-interleaved)
};

// Rotates, in place, the first dim elements of each of `heads` heads of d elements, by the angles of one position.
// cos, sin: [dim / 2]. inverse rotates by the opposite angle.
template <class T>
void rope(RopePairs pairs, T* x, int64_t heads, int64_t d, int64_t dim, const float* cos, const float* sin,
          bool inverse);

}  // namespace ms::kernels
