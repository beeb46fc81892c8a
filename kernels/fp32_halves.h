// fp32 numbers split into two 16-bit planes, the upper of which is the number in bf16: bf16 weights are the high halves
// of their fp32 master weights, which saves storing them twice.
//
// The upper half is the number rounded to nearest even; the lower half is its low 16 bits. Both are taken from the bits
// + 0x8000, so the carry shows which way it was rounded. One case is ambiguous: a number halfway above an even upper
// half is rounded down and would then equal the number below it (bits + 0x7fff). It is flagged by a mark, stored in the
// sign of another number. Every value except NaN is restored bit for bit; a NaN keeps what bf16 keeps.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace ms::kernels {

struct Fp32Halves {
  bf16* high = nullptr;     // [n]
  uint16_t* low = nullptr;  // [n]
  float* marks = nullptr;   // [n], values >= 0 whose sign bits hold the marks; none of the three is owned

  Fp32Halves from(int64_t begin) const { return {high + begin, low + begin, marks + begin}; }
};

// Splits values [n] into halves and sets the signs of marks.
void split_fp32(const float* values, int64_t n, const Fp32Halves& halves);

// The inverse of split_fp32; clears the signs of marks.
void join_fp32(const Fp32Halves& halves, int64_t n, float* values);

}  // namespace ms::kernels
