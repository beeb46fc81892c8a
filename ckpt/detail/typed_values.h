// Converts elements of any type to double, for statistics and comparisons.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/bf16.h"
#include "kernels/fp16.h"

namespace ms::ckpt::detail {

struct Complex64 {
  float real, imaginary;
};
// FP8 by its layout: exponent bits and bias; E8M0 has only an exponent.
template <int exponent_bits, int bias>
struct Fp8 {
  uint8_t bits;
};
using E4M3 = Fp8<4, 7>;
using E5M2 = Fp8<5, 15>;
using E8M0 = Fp8<8, 127>;
using E4M3Fnuz = Fp8<4, 8>;
using E5M2Fnuz = Fp8<5, 16>;

// Calls use(element type) for the dtype. Throws kUnsupported for one that is not numeric.
template <class Use>
auto with_type(core::DType dtype, const Use& use) {
  using core::DType;
  switch (dtype) {
    case DType::kFp32:
      return use(float());
    case DType::kFp64:
      return use(double());
    case DType::kBf16:
      return use(kernels::bf16());
    case DType::kFp16:
      return use(kernels::fp16());
    case DType::kInt8:
      return use(int8_t());
    case DType::kUInt8:
    case DType::kBool:
      return use(uint8_t());
    case DType::kInt16:
      return use(int16_t());
    case DType::kUInt16:
      return use(uint16_t());
    case DType::kInt32:
      return use(int32_t());
    case DType::kInt64:
      return use(int64_t());
    case DType::kUInt32:
      return use(uint32_t());
    case DType::kUInt64:
      return use(uint64_t());
    case DType::kComplex64:
      return use(Complex64());
    case DType::kFp8E4M3:
      return use(E4M3());
    case DType::kFp8E5M2:
      return use(E5M2());
    case DType::kFp8E8M0:
      return use(E8M0());
    case DType::kFp8E4M3Fnuz:
      return use(E4M3Fnuz());
    case DType::kFp8E5M2Fnuz:
      return use(E5M2Fnuz());
  }
  throw core::Error(core::ErrorCode::kUnsupported,
                    core::cat("values of ", core::dtype_name(dtype), " cannot be interpreted"));
}

inline double to_double(kernels::bf16 value) { return kernels::to_float(value); }
inline double to_double(kernels::fp16 value) { return kernels::to_float(value); }
inline double to_double(Complex64 value) { return std::hypot(double{value.real}, double{value.imaginary}); }
inline double to_double(E8M0 value) {
  return value.bits == 0xff ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, int{value.bits} - 127);
}
// As in the OCP 8-bit floating point specification; fnuz: no infinities and no -0, whose code is NaN.
template <int exponent_bits, int bias>
double to_double(Fp8<exponent_bits, bias> value) {
  constexpr int kMantissaBits = 7 - exponent_bits;
  constexpr bool kFnuz = bias == 8 || bias == 16;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const int exponent = value.bits >> kMantissaBits & ((1 << exponent_bits) - 1);
  const int mantissa = value.bits & ((1 << kMantissaBits) - 1), code = value.bits & 0x7f;
  if (kFnuz ? value.bits == 0x80 : exponent_bits == 4 && code == 0x7f) return kNan;
  double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - kMantissaBits)
                                   : std::ldexp(mantissa + (1 << kMantissaBits), exponent - bias - kMantissaBits);
  if (!kFnuz && exponent_bits == 5 && exponent == 31) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : kNan;
  }
  return value.bits & 0x80 ? -magnitude : magnitude;
}
template <class T>
double to_double(T value) {
  return static_cast<double>(value);
}

}  // namespace ms::ckpt::detail
