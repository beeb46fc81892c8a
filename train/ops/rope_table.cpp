#include <cmath>
#include <utility>
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

RopeTable::RopeTable(core::Arena& arena, std::vector<PositionSpan> positions,
                     std::span<const float> inverse_frequencies, RopePairs pairs, double factor)
    : positions_(std::move(positions)), dim_(2 * static_cast<int64_t>(inverse_frequencies.size())), pairs_(pairs) {
  int64_t rows = 0;
  for (const PositionSpan& span : positions_) rows += span.count;
  if (dim_ == 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("rotary embedding: ", dim_, " elements for ", rows, " positions"));
  }
  const int64_t half = dim_ / 2;
  cos_ = core::Tensor(arena, core::DType::kFp32, {rows, half}, core::MemoryTag::kTmp);
  sin_ = core::Tensor(arena, core::DType::kFp32, {rows, half}, core::MemoryTag::kTmp);
  const auto scale = static_cast<float>(factor);
  auto *cosine = cos_.data<float>(), *sine = sin_.data<float>();
  for (const PositionSpan& span : positions_) {
    for (int64_t position = span.first; position < span.first + span.count; ++position) {
      for (const float frequency : inverse_frequencies) {
        const float angle = static_cast<float>(position) * frequency;
        *cosine++ = std::cos(angle) * scale;
        *sine++ = std::sin(angle) * scale;
      }
    }
  }
}

int64_t RopeTable::row_of(int64_t position) const {
  int64_t row = 0;  // of the span's first position
  for (const PositionSpan& span : positions_) {
    if (position >= span.first && position < span.first + span.count) return row + position - span.first;
    row += span.count;
  }
  const int64_t behind = positions_.empty() ? 0 : positions_.back().first + positions_.back().count;
  MS_CHECK(position >= behind, "rotary embedding: the table of ", row, " positions does not have ", position);
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat("rotary embedding: position ", position, ", but the table ends before position ", behind,
                              "; raise --max-position-embeddings"));
}

}  // namespace ms::ops
