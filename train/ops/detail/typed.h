// Dispatch on the storage type, and the checks and sizes that operators share.
#pragma once

#include <unistd.h>

#include "core/error.h"
#include "core/tensor.h"
#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "kernels/stores.h"

namespace ms::core {
template <>
constexpr DType dtype_of<kernels::fp16>() {
  return DType::kFp16;
}
}  // namespace ms::core

namespace ms::ops::detail {

// Calls body.template operator()<T>(), where T is the type of dtype; only for the storage types of activations.
template <class Body>
decltype(auto) with_type(core::DType dtype, const Body& body) {
  if (dtype == core::DType::kBf16) return body.template operator()<kernels::bf16>();
  if (dtype == core::DType::kFp16) return body.template operator()<kernels::fp16>();
  MS_CHECK(dtype == core::DType::kFp32, "operand is ", core::dtype_name(dtype), "; operators take fp32, bf16 and fp16");
  return body.template operator()<float>();
}

// Product of all axes but the last.
inline int64_t num_rows(const core::TensorView& x) {
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < x.shape().size(); ++axis) rows *= x.shape()[axis];
  return rows;
}

inline core::Dims with_last(core::Dims shape, int64_t last) {
  shape.back() = last;
  return shape;
}

inline void check_dtype(const core::TensorView& x, core::DType dtype, const char* what) {
  MS_CHECK(x.dtype() == dtype, what, " is ", core::dtype_name(x.dtype()), ", expected ", core::dtype_name(dtype));
}

inline void check_shape(const core::TensorView& x, const core::Dims& shape, const char* what) {
  MS_CHECK(x.shape() == shape, what, " is ", core::cat(x.shape()), ", expected ", core::cat(shape));
}

inline void check_size(const core::TensorView& x, int64_t size, const char* what) {
  MS_CHECK(x.size() == size, what, " has ", x.size(), " elements, expected ", size);
}

// Fewest elements per thread for work that moves memory: with less, waking a thread costs more than it saves.
inline constexpr int64_t kGrainElements = 16384;
// How to store a result of so many bytes: one that fills half of the last-level cache would evict its own inputs, and
// be evicted before it is read, so it is written past the caches.
inline kernels::Stores stores_of(int64_t bytes) {
  static const int64_t cache_bytes = [] {
    const int64_t told = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return told > 0 ? told : int64_t{32} << 20;
  }();
  return 2 * bytes > cache_bytes ? kernels::Stores::kNonTemporal : kernels::Stores::kCached;
}

inline int64_t row_grain(int64_t row_elements) {
  return row_elements >= kGrainElements ? 1 : kGrainElements / (row_elements > 0 ? row_elements : 1);
}

}  // namespace ms::ops::detail
