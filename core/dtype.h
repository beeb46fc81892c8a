// Element types of tensors, in memory and in files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/bf16.h"

namespace ms::core {

enum class DType : uint8_t {
  kFp32,
  kBf16,
  kFp16,
  kFp64,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt16,
  kBool,
  // Copied from file to file, not used in arithmetic.
  kUInt32,
  kUInt64,
  kComplex64,
  kFp8E4M3,
  kFp8E5M2,
  kFp8E8M0,
  kFp8E4M3Fnuz,
  kFp8E5M2Fnuz,
};

int64_t size_of(DType dtype);                             // bytes per element
std::string_view dtype_name(DType dtype);                 // "fp32", "bf16", ... as in our manifest
std::optional<DType> parse_dtype(std::string_view name);  // inverse of dtype_name

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kFp32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::kFp64;
}
template <>
constexpr DType dtype_of<kernels::bf16>() {
  return DType::kBf16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::kUInt8;
}

}  // namespace ms::core
