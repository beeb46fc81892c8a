// Integer tensors for tests of quantised operators: int8, and 4-bit numbers in both packings (quantized_matmul.h).
#pragma once

#include "tests/train/ops/ops_fixture.h"
#include "train/ops/quantized_matmul.h"

namespace ms::ops {

inline core::Tensor int8s(Ops& ops, const core::Dims& shape, uint64_t salt, int32_t low = -128, int32_t high = 127) {
  core::Tensor x(ops.arena, core::DType::kInt8, shape, core::MemoryTag::kTmp);
  const auto values = test::RandomValues(salt).integers(x.size(), low, high);
  for (size_t i = 0; i < values.size(); ++i) x.bytes()[i] = static_cast<std::byte>(static_cast<int8_t>(values[i]));
  return x;
}
inline reference::Array int8_array(const core::TensorView& x) {
  const auto* values = reinterpret_cast<const int8_t*>(x.bytes());
  return {values, values + x.size()};
}

// Packs x, int8 within [-8, 7], into 4-bit numbers, as torch_npu's npu_convert_weight_to_int4pack does: eight per
// int32, or two per uint8.
inline core::Tensor packed_int4(Ops& ops, const core::TensorView& x, core::DType dtype) {
  const int64_t each = packed_weights(dtype);
  core::Dims shape = x.shape();
  shape.back() /= each;
  core::Tensor packed(ops.arena, dtype, shape, core::MemoryTag::kTmp);
  for (int64_t i = 0; i < packed.size(); ++i) {
    uint32_t bits = 0;
    for (int64_t j = 0; j < each; ++j) {
      bits |= (static_cast<uint32_t>(x.bytes()[i * each + j]) & 15) << (4 * j);
    }
    if (dtype == core::DType::kInt32) {
      packed.data<int32_t>()[i] = static_cast<int32_t>(bits);
    } else {
      packed.data<uint8_t>()[i] = static_cast<uint8_t>(bits);
    }
  }
  return packed;
}

}  // namespace ms::ops
