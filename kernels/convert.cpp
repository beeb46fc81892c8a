#include "kernels/convert.h"

#include <bit>
#include <cmath>

namespace ms::kernels {
namespace {

float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu, mantissa = half & 0x3ffu;
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

uint16_t float_to_half(float value) {
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

}  // namespace
}  // namespace ms::kernels

#define MS_KERNEL_BODY "kernels/impl/convert.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

void convert(const float* source, bf16* target, int64_t n) { MS_DISPATCH(convert(source, target, n)); }
void convert(const bf16* source, float* target, int64_t n) { MS_DISPATCH(convert(source, target, n)); }
void convert(const float* source, fp16* target, int64_t n) { MS_DISPATCH(convert(source, target, n)); }
void convert(const fp16* source, float* target, int64_t n) { MS_DISPATCH(convert(source, target, n)); }
void convert(const bf16* source, fp16* target, int64_t n) { MS_DISPATCH(convert(source, target, n)); }
void convert(const fp16* source, bf16* target, int64_t n) { MS_DISPATCH(convert(source, target, n)); }

}  // namespace ms::kernels
