// IEEE binary16: 5 exponent bits, 10 mantissa bits. Rounds to nearest even; magnitudes from 65520 become inf;
// subnormals are kept; NaN stays NaN (quiet bit set).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace ms::kernels {

struct fp16 {
  uint16_t bits = 0;

  fp16() = default;
  explicit fp16(float value) : bits(round(value)) {}
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 31) {
      const uint32_t quiet = mantissa == 0 ? 0 : 0x400000u;
      return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
    }
    if (exponent == 0) {
      const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
      return sign != 0 ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  friend bool operator==(fp16 a, fp16 b) { return a.bits == b.bits; }

  static uint16_t round(float value) {
    const uint32_t pattern = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>((pattern >> 16) & 0x8000u);
    const uint32_t magnitude = pattern & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to inf
    if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, rounded to even by nearbyint
      const float units = std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24));
      return static_cast<uint16_t>(sign | static_cast<uint16_t>(units));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13));
  }
};
static_assert(sizeof(fp16) == 2);

inline float to_float(fp16 value) { return static_cast<float>(value); }
inline void store(fp16& target, float value) { target = fp16(value); }

}  // namespace ms::kernels
