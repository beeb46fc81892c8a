#include <cmath>
#include <vector>

#include "core/error.h"
#include "train/ops/rope.h"

namespace ms::ops {

std::vector<float> rope_inverse_frequencies(int64_t dim, double base, std::span<const double> divisors) {
  if (dim <= 0 || dim % 2 != 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("rotary embedding: ", dim,
                                " elements of a head to rotate; their number must be even "
                                "and positive (see --kv-channels and --rotary-percent)"));
  }
  MS_CHECK(divisors.empty() || static_cast<int64_t>(divisors.size()) == dim / 2, divisors.size(), " divisors of ",
           dim / 2);
  std::vector<float> result(static_cast<size_t>(dim / 2));
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const float wavelength = std::pow(static_cast<float>(base), exponent);
    const auto at = static_cast<size_t>(i);
    result[at] = 1.0F / (divisors.empty() ? wavelength : static_cast<float>(divisors[at]) * wavelength);
  }
  return result;
}

RopeTable::RopeTable(core::Arena& arena, int64_t positions, std::span<const float> inverse_frequencies, RopePairs pairs,
                     double factor)
    : positions_(positions), dim_(2 * static_cast<int64_t>(inverse_frequencies.size())), pairs_(pairs) {
  if (dim_ == 0 || positions < 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("rotary embedding: ", dim_, " elements for ", positions, " positions"));
  }
  const int64_t half = dim_ / 2;
  cos_ = core::Tensor(arena, core::DType::kFp32, {positions, half}, core::MemoryTag::kTmp);
  sin_ = core::Tensor(arena, core::DType::kFp32, {positions, half}, core::MemoryTag::kTmp);
  const auto scale = static_cast<float>(factor);
  auto* cosines = cos_.data<float>();
  auto* sines = sin_.data<float>();
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * inverse_frequencies[static_cast<size_t>(i)];
      cosines[position * half + i] = std::cos(angle) * scale;
      sines[position * half + i] = std::sin(angle) * scale;
    }
  }
}

}  // namespace ms::ops
