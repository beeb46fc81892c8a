#include "core/layout/box.h"

#include <algorithm>

#include "core/error.h"

namespace ms::layout {

std::optional<Box> intersect(const core::Dims& a_offset, const core::Dims& a_extent, const core::Dims& b_offset,
                             const core::Dims& b_extent) {
  MS_CHECK(a_offset.size() == b_offset.size(), "boxes of ", a_offset.size(), " and ", b_offset.size(), " axes");
  Box box{core::Dims(a_offset.size()), core::Dims(a_offset.size())};
  for (size_t axis = 0; axis < a_offset.size(); ++axis) {
    const int64_t begin = std::max(a_offset[axis], b_offset[axis]);
    const int64_t end = std::min(a_offset[axis] + a_extent[axis], b_offset[axis] + b_extent[axis]);
    if (end <= begin) return std::nullopt;
    box.offset[axis] = begin;
    box.extent[axis] = end - begin;
  }
  return box;
}

int64_t flat_index(const core::Dims& shape, const core::Dims& index) {
  int64_t flat = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) flat = flat * shape[axis] + index[axis];
  return flat;
}

void for_each_box_of_range(const core::Dims& shape, int64_t first, int64_t count,
                           const std::function<void(const Box&, int64_t)>& emit) {
  const size_t axes = shape.size();
  for_each_piece_of_range(shape, first, count, [&](const int64_t* offset, const int64_t* extent, int64_t begin) {
    emit({core::Dims(offset, offset + axes), core::Dims(extent, extent + axes)}, begin);
  });
}

}  // namespace ms::layout
