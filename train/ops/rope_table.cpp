#include <cmath>
#include <vector>

#include "core/error.h"
#include "train/ops/rope.h"

namespace ms::ops {

RopeTable::RopeTable(core::Arena& arena, int64_t positions, int64_t dim, double base)
    : positions_(positions), dim_(dim) {
  if (dim <= 0 || dim % 2 != 0 || positions < 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("rotary embedding: dim ", dim, " for ", positions,
                                " positions; the rotated part of a head must be even (see --rotary-percent)"));
  }
  const int64_t half = dim / 2;
  cos_ = core::Tensor(arena, core::DType::kFp32, {positions, half}, core::MemoryTag::kTmp);
  sin_ = core::Tensor(arena, core::DType::kFp32, {positions, half}, core::MemoryTag::kTmp);
  // transformers: inv_freq = 1.0 / (base ** (arange(0, dim, 2).float() / dim)), every step rounded to fp32.
  std::vector<float> inverse_frequency(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    inverse_frequency[static_cast<size_t>(i)] = 1.0F / std::pow(static_cast<float>(base), exponent);
  }
  auto* cosines = cos_.data<float>();
  auto* sines = sin_.data<float>();
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * inverse_frequency[static_cast<size_t>(i)];
      cosines[position * half + i] = std::cos(angle);
      sines[position * half + i] = std::sin(angle);
    }
  }
}

}  // namespace ms::ops
