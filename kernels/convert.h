// Conversion between storage types, n elements; narrowing rounds to nearest even, NaN stays NaN (quiet).
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace ms::kernels {

// IEEE binary16: 5 bits of exponent, 10 of mantissa. Values above 65504 become inf, subnormals are kept.
struct fp16 {
  uint16_t bits = 0;
};
static_assert(sizeof(fp16) == 2);

void convert(const float* source, bf16* target, int64_t n);
void convert(const bf16* source, float* target, int64_t n);
void convert(const float* source, fp16* target, int64_t n);
void convert(const fp16* source, float* target, int64_t n);
void convert(const bf16* source, fp16* target, int64_t n);
void convert(const fp16* source, bf16* target, int64_t n);

}  // namespace ms::kernels
