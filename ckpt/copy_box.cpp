#include "ckpt/copy_box.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/layout/box.h"

namespace ms::ckpt {

void copy_box(const std::byte* source, const core::Dims& source_shape, const core::Dims& source_offset,
              std::byte* target, const core::Dims& target_shape, const core::Dims& target_offset,
              const core::Dims& extent, int64_t item_size) {
  const size_t axes = extent.size();
  // `run`: number of elements that are contiguous on both sides; the loops run over the axes before `inner`.
  int64_t run = 1;
  size_t inner = axes;
  while (inner > 0) {
    --inner;
    run *= extent[inner];
    if (extent[inner] != source_shape[inner] || extent[inner] != target_shape[inner]) break;
  }
  if (core::num_elements(extent) == 0) return;
  core::Dims index(inner, 0);
  core::Dims source_stride(axes, 1), target_stride(axes, 1);
  for (size_t axis = axes; axis > 1; --axis) {
    source_stride[axis - 2] = source_stride[axis - 1] * source_shape[axis - 1];
    target_stride[axis - 2] = target_stride[axis - 1] * target_shape[axis - 1];
  }
  const std::byte* from = source + layout::flat_index(source_shape, source_offset) * item_size;
  std::byte* to = target + layout::flat_index(target_shape, target_offset) * item_size;
  while (true) {
    int64_t source_at = 0, target_at = 0;
    for (size_t axis = 0; axis < inner; ++axis) {
      source_at += index[axis] * source_stride[axis];
      target_at += index[axis] * target_stride[axis];
    }
    std::memcpy(to + target_at * item_size, from + source_at * item_size, static_cast<size_t>(run * item_size));
    size_t axis = inner;
    while (axis > 0 && ++index[axis - 1] == extent[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace ms::ckpt
