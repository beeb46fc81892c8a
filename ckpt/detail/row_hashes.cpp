#include "ckpt/detail/row_hashes.h"

#include <cstring>

#include "core/layout/box.h"

namespace ms::ckpt::detail {
namespace {

// Mixes an element with its index; sums of these depend on the positions, not on the order of addition.
uint64_t mixed(uint64_t bits, int64_t index) {
  uint64_t m = (bits + 1) * 0x9E3779B97F4A7C15u ^ static_cast<uint64_t>(index + 1) * 0xD6E8FEB86659FD93u;
  m ^= m >> 32;
  m *= 0xD6E8FEB86659FD93u;
  m ^= m >> 29;
  m *= 0x9E3779B97F4A7C15u;
  return m ^ m >> 32;
}

}  // namespace

RowHashes::RowHashes(const TensorParts& parts, std::span<const int64_t> shape)
    : parts_(parts), shape_(shape.begin(), shape.end()), parts_hashes_(parts.size()) {
  for (size_t axis = 1; axis < shape_.size(); ++axis) columns_ *= shape_[axis];
  for (size_t part = 0; part < parts.size(); ++part) {
    const auto rows = static_cast<size_t>(parts.rows(part)), columns = static_cast<size_t>(columns_);
    parts_hashes_[part] = {std::vector<uint64_t>(rows), std::vector<uint64_t>(columns), std::vector<uint64_t>(columns)};
  }
}

void RowHashes::add(const core::ShardedTensor& place, const std::byte* data) {
  const auto item = static_cast<size_t>(core::size_of(place.dtype));
  const int64_t count = core::num_elements(place.local_shape);
  core::Dims index(place.local_shape.size());
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, data + static_cast<size_t>(i) * item, item);
    int64_t rest = i;
    for (size_t axis = index.size(); axis-- > 0; rest /= place.local_shape[axis]) {
      index[axis] = place.global_offset[axis] + rest % place.local_shape[axis];
    }
    const int64_t flat = index.empty() ? 0 : layout::flat_index(shape_, index);
    const TensorParts::Row row = parts_.of_row(flat / columns_);
    const int64_t column = flat % columns_, rows = parts_.rows(row.part);
    PartHashes& hashes = parts_hashes_[row.part];
    hashes.rows[static_cast<size_t>(row.index)] += mixed(bits, column);
    hashes.columns[static_cast<size_t>(column)] += mixed(bits, row.index);
    const int64_t within = row.index * columns_ + column;
    hashes.turned[static_cast<size_t>(within / rows)] += mixed(bits, within % rows);
  }
}

}  // namespace ms::ckpt::detail
