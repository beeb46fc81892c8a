#include "core/layout/buffer_cut.h"

#include <algorithm>

#include "core/error.h"

namespace ms::layout {

int64_t unit_of(const ParameterSpec& spec) {
  return spec.key == "embedding.position_embeddings.weight" ? kPositionsUnit : spec.layer;
}

int64_t BufferCut::add(int64_t unit, int64_t numel) {
  const bool begins = units_.empty() || (sharding_.gradients() && units_.back().id != unit);
  if (begins) {
    finish();
    units_.push_back({unit, {size(), size()}});
  }
  FlatRange& range = units_.back().range;
  const int64_t offset = range.end;
  range.end += aligned_size(numel);
  return offset;
}

void BufferCut::finish() {
  if (units_.empty()) return;
  FlatRange& range = units_.back().range;
  range.end = range.begin + buffer_size(range.end - range.begin, sharding_.data_parallel_size);
}

int64_t BufferCut::largest_unit() const {
  int64_t largest = 0;
  for (const Unit& unit : units_) largest = std::max(largest, unit.range.end - unit.range.begin);
  return largest;
}

FlatRange BufferCut::owned_block(const Unit& unit, int dp_rank) const {
  if (owners() == 1) return unit.range;
  const FlatRange block = block_of_buffer(unit.range.end - unit.range.begin, owners(), dp_rank);
  return {unit.range.begin + block.begin, unit.range.begin + block.end};
}

const BufferCut::Unit& BufferCut::unit_at(int64_t element) const {
  const auto after = std::ranges::upper_bound(units_, element, {}, [](const Unit& unit) { return unit.range.begin; });
  MS_CHECK(after != units_.begin(), "element ", element, " is in no unit");
  return after[-1];
}

FlatRange BufferCut::owned_part(FlatRange elements, int dp_rank) const {
  const FlatRange block = owned_block(unit_at(elements.begin), dp_rank);
  return {std::max(elements.begin, block.begin), std::min(elements.end, block.end)};
}

FlatRange BufferCut::owned_place(FlatRange part, int dp_rank) const {
  const Unit& unit = unit_at(part.begin);
  const int64_t begin = unit.range.begin / owners() + part.begin - owned_block(unit, dp_rank).begin;
  return {begin, begin + part.end - part.begin};
}

std::vector<int64_t> BufferCut::owned_counts(FlatRange range) const {
  std::vector<int64_t> counts(static_cast<size_t>(sharding_.data_parallel_size));
  for (int rank = 0; rank < sharding_.data_parallel_size; ++rank) {
    for (const Unit& unit : units_) {
      const FlatRange block = owned_block(unit, rank);
      counts[static_cast<size_t>(rank)] +=
          std::max<int64_t>(0, std::min(block.end, range.end) - std::max(block.begin, range.begin));
    }
  }
  return counts;
}

}  // namespace ms::layout
