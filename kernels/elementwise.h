// Sum and scaling of n elements. T: float, bf16 or fp16; arithmetic in fp32.
#pragma once

#include <cstdint>

#include "kernels/stores.h"

namespace ms::kernels {

// out = a + b; out may be a or b.
template <class T>
void add(const T* a, const T* b, int64_t n, T* out, Stores stores = Stores::kCached);

// sum += x
template <class T>
void accumulate(float* sum, const T* x, int64_t n);

// x *= factor
template <class T>
void scale(T* x, int64_t n, float factor);

}  // namespace ms::kernels
