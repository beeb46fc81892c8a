// Reads a box of a tensor of any number of axes that is stored dense and row-major in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/error.h"
#include "core/sharded_tensor.h"

namespace ms::convert::detail {

// Reads the box [offset, offset + extent) of a tensor of `shape` to `out`, dense. item: bytes per element. read(at,
// bytes): reads the bytes from byte `at` of the tensor on; called once per contiguous run.
template <class Read>
void read_nd_box(const core::Dims& shape, int64_t item, const core::Dims& offset, const core::Dims& extent,
                 std::byte* out, const Read& read) {
  const size_t axes = shape.size();
  MS_CHECK(offset.size() == axes && extent.size() == axes, "axes of a box");
  for (size_t axis = 0; axis < axes; ++axis) {
    MS_CHECK(offset[axis] >= 0 && extent[axis] >= 0 && offset[axis] + extent[axis] <= shape[axis], "range of a box");
  }
  // Axes from `inner` on are read whole, so the range of the axis before them is one run.
  size_t inner = axes;
  while (inner > 0 && extent[inner - 1] == shape[inner - 1]) --inner;
  const size_t outer = inner > 0 ? inner - 1 : 0;
  int64_t run = item, runs = 1;
  for (size_t axis = 0; axis < axes; ++axis) (axis < outer ? runs : run) *= extent[axis];
  core::Dims at(outer, 0);
  for (int64_t n = 0; n < runs && run > 0; ++n, out += run) {
    int64_t element = 0;
    for (size_t axis = 0; axis < axes; ++axis) {
      element = element * shape[axis] + offset[axis] + (axis < outer ? at[axis] : 0);
    }
    read(element * item, std::span(out, static_cast<size_t>(run)));
    for (size_t axis = outer; axis > 0; --axis) {
      if (++at[axis - 1] < extent[axis - 1]) break;
      at[axis - 1] = 0;
    }
  }
}

}  // namespace ms::convert::detail
