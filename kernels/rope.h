// Rotary position embedding, half-rotation mode: element i pairs with element i + dim/2. T: float or bf16.
#pragma once

#include <cstdint>

namespace ms::kernels {

// Rotates, in place, the first dim elements of each of `heads` heads of d elements, by the angles of one position.
// cos, sin: [dim / 2]. inverse rotates by the opposite angle.
template <class T>
void rope(T* x, int64_t heads, int64_t d, int64_t dim, const float* cos, const float* sin, bool inverse);

}  // namespace ms::kernels
