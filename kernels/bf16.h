// bfloat16: the upper half of an fp32, rounded to nearest even. NaN stays NaN (quiet bit set).
#pragma once

#include <bit>
#include <cstdint>

namespace ms::kernels {

struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) : bits(round(value)) {}
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  friend bool operator==(bf16 a, bf16 b) { return a.bits == b.bits; }

  static uint16_t round(float value) {
    const uint32_t pattern = std::bit_cast<uint32_t>(value);
    if ((pattern & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((pattern >> 16) | 0x40u);
    return static_cast<uint16_t>((pattern + 0x7fffu + ((pattern >> 16) & 1u)) >> 16);
  }
};
static_assert(sizeof(bf16) == 2);

// Load and store as fp32, for code that is written once for all storage types.
inline float to_float(float value) { return value; }
inline float to_float(bf16 value) { return static_cast<float>(value); }
inline void store(float& target, float value) { target = value; }
inline void store(bf16& target, float value) { target = bf16(value); }

}  // namespace ms::kernels
