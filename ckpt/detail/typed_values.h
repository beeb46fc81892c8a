// Elements of any type as doubles: what statistics and comparisons look at.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/bf16.h"
#include "kernels/fp16.h"

namespace ms::ckpt::detail {

// Calls use(element type) for the dtype. Throws kUnsupported for one that is no number.
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
  }
  throw core::Error(core::ErrorCode::kUnsupported,
                    core::cat("values of ", core::dtype_name(dtype), " cannot be looked at"));
}

inline double to_double(kernels::bf16 value) { return kernels::to_float(value); }
inline double to_double(kernels::fp16 value) { return kernels::to_float(value); }
template <class T>
double to_double(T value) {
  return static_cast<double>(value);
}

}  // namespace ms::ckpt::detail
