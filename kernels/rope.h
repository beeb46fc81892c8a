// Rotary position embedding (Su et al. 2021). T: float, bf16 or fp16.
#pragma once

#include <cstdint>

namespace ms::kernels {

enum class RopePairs : uint8_t {
  kHalves,      // element i with element i + dim/2 (Megatron, most Hugging Face models)
  kNeighbours,  // element 2i with element 2i + 1 (the paper; Megatron's --rotary-interleaved)
};

// Rotates in place the first dim elements of each of `heads` heads of d elements by the angles of one position. cos,
// sin: [dim / 2]. inverse: rotate by the opposite angle.
template <class T>
void rope(RopePairs pairs, T* x, int64_t heads, int64_t d, int64_t dim, const float* cos, const float* sin,
          bool inverse);

// Rotates one head of d elements (even) with one table entry per element: y = x * cos + R(x) * sin, where R maps each
// pair (x1, x2) to (-x2, x1). y must not be x.
template <class T>
void rotate(RopePairs pairs, const T* x, const T* cos, const T* sin, int64_t d, T* y);

// dx = dy * cos - R(dy * sin). dx must not be dy.
template <class T>
void rotate_backward(RopePairs pairs, const T* dy, const T* cos, const T* sin, int64_t d, T* dx);

// dcos += dy * x, dsin += dy * R(x); fp32 [d].
template <class T>
void rotate_backward_tables(RopePairs pairs, const T* dy, const T* x, int64_t d, float* dcos, float* dsin);

}  // namespace ms::kernels
