// Boxes of elements: the unit in which every layout is described.
//
// A box is an offset and an extent within an n-d tensor (elements, outermost axis first). A flat range is [first, first
// + count) of the elements of a dense row-major box; it is the union of at most 2n - 1 boxes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "core/dims.h"

namespace ms::layout {

inline constexpr size_t kMaxAxes = core::Dims::kMaxAxes;  // of any tensor

struct Box {
  core::Dims offset;
  core::Dims extent;
  bool operator==(const Box&) const = default;
};

// The intersection of two boxes of one tensor; nullopt if it is empty. Both boxes must have the same number of axes.
std::optional<Box> intersect(const core::Dims& a_offset, const core::Dims& a_extent, const core::Dims& b_offset,
                             const core::Dims& b_extent);

// Calls emit(box, first) for boxes that together cover the elements [first, first + count) of a dense row-major tensor
// of this shape, in that order; the second argument is the flat index of the box's first element. Each emitted box is
// contiguous in the flat order. A scalar (no axes) is emitted as a box with no axes.
void for_each_box_of_range(const core::Dims& shape, int64_t first, int64_t count,
                           const std::function<void(const Box&, int64_t first)>& emit);

// As for_each_box_of_range, but allocates no Box: emit(offset, extent, first), shape.size() numbers at each pointer.
template <class Emit>
void for_each_piece_of_range(std::span<const int64_t> shape, int64_t first, int64_t count, const Emit& emit) {
  if (count <= 0) return;
  const size_t axes = shape.size();
  std::array<int64_t, kMaxAxes> offset, extent, stride;
  if (axes == 0) return emit(offset.data(), extent.data(), int64_t{0});
  stride[axes - 1] = 1;  // in elements
  for (size_t axis = axes - 1; axis > 0; --axis) stride[axis - 1] = stride[axis] * shape[axis];
  const int64_t end = first + count;
  while (first < end) {
    // The outermost axis along which at least one whole slice starts at `first` and fits.
    size_t axis = 0;
    while (axis + 1 < axes && (first % stride[axis] != 0 || end - first < stride[axis])) ++axis;
    int64_t rest = first;
    for (size_t a = 0; a < axes; ++a) {
      offset[a] = rest / stride[a];
      rest %= stride[a];
      extent[a] = a > axis ? shape[a] : 1;
    }
    extent[axis] = std::min(shape[axis] - offset[axis], (end - first) / stride[axis]);
    emit(offset.data(), extent.data(), first);
    first += extent[axis] * stride[axis];
  }
}

// Flat index of `index` in a dense row-major tensor of this shape.
int64_t flat_index(const core::Dims& shape, const core::Dims& index);

}  // namespace ms::layout
