// Operands for the benchmarks of operators.
#pragma once

#include <utility>

#include "core/tensor.h"
#include "tests/support/random_values.h"

namespace ms::ops {

// fp32 in [-1, 1], 65536 values repeated; the operators' time does not depend on more.
inline core::Tensor random_tensor(core::Arena& arena, core::Dims shape) {
  core::Tensor x(arena, core::DType::kFp32, std::move(shape), core::MemoryTag::kTmp);
  const auto values = test::RandomValues().make(1 << 16);
  for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = values[static_cast<size_t>(i % (1 << 16))];
  return x;
}

}  // namespace ms::ops
