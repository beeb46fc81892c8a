// fp32 numbers as two planes of 16 bits, of which the upper is the numbers in bf16: master weights that share their
// memory with the weights (features.md 4.5).
//
// The upper half is the number rounded to nearest even, the lower one its low 16 bits; both of the bits + 0x8000, so
// that a carry tells which way it was rounded. One case is left over: halfway above an even upper half the number is
// rounded down, and its bits + 0x7fff are those of the number below. It is told by a mark, in the sign of another
// number. Whatever is not NaN comes back to the bit; of NaN what bf16 keeps.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace ms::kernels {

struct Fp32Halves {
  bf16* high = nullptr;     // [n]
  uint16_t* low = nullptr;  // [n]
  float* marks = nullptr;   // [n], each >= 0 but for the sign, which is lent; not owned, as the others

  Fp32Halves from(int64_t begin) const { return {high + begin, low + begin, marks + begin}; }
};

// values [n] -> halves, and signs of marks.
void split_fp32(const float* values, int64_t n, const Fp32Halves& halves);

// The inverse; marks get back their own sign.
void join_fp32(const Fp32Halves& halves, int64_t n, float* values);

}  // namespace ms::kernels
