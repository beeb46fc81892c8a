// Reads a box of a matrix (or vector) that is stored dense and row-major in a file, with few calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/sharded_tensor.h"

namespace ms::convert::detail {

// Below the size that a core::BulkReader reads past the page cache: the gaps between the runs belong to other readers,
// which then find them in the page cache.
inline constexpr int64_t kScratchBytes = 512 << 10;
inline constexpr int64_t kMergeGapBytes = 64 << 10;  // closer runs are read in one call

// Checks that a box [offset, offset + extent) lies in a vector or matrix of this shape.
inline void check_box(const core::Dims& shape, const core::Dims& offset, const core::Dims& extent) {
  MS_CHECK((shape.size() == 1 || shape.size() == 2) && offset.size() == shape.size() && extent.size() == shape.size(),
           "axes of a box");
  for (size_t axis = 0; axis < offset.size(); ++axis) {
    MS_CHECK(offset[axis] >= 0 && extent[axis] >= 0 && offset[axis] + extent[axis] <= shape[axis], "range of a box");
  }
}

// Reads such a box of a tensor of `shape` to `out`, dense. item: bytes per element. read(at, bytes): reads the bytes
// from byte `at` of the tensor on.
template <class Read>
void read_dense_box(const core::Dims& shape, int64_t item, const core::Dims& offset, const core::Dims& extent,
                    std::byte* out, const Read& read) {
  check_box(shape, offset, extent);
  const bool matrix = shape.size() == 2;
  // Rows of `run` bytes, `stride` bytes apart.
  const int64_t stride = (matrix ? shape[1] : 1) * item;
  const int64_t run = (matrix ? extent[1] : 1) * item;
  const int64_t rows = extent[0];
  int64_t at = offset[0] * stride + (matrix ? offset[1] : 0) * item;
  const auto bytes = [](std::byte* data, int64_t count) { return std::span(data, static_cast<size_t>(count)); };
  if (run == 0 || rows == 0) return;
  if (run == stride) return read(at, bytes(out, rows * run));
  if (stride - run >= kMergeGapBytes || stride > kScratchBytes) {
    for (int64_t row = 0; row < rows; ++row, at += stride) read(at, bytes(out + row * run, run));
    return;
  }
  const int64_t rows_at_once = std::min(rows, kScratchBytes / stride);
  std::vector<std::byte> scratch(static_cast<size_t>(rows_at_once * stride));
  for (int64_t first = 0; first < rows; first += rows_at_once) {
    const int64_t count = std::min(rows_at_once, rows - first);
    read(at + first * stride, bytes(scratch.data(), (count - 1) * stride + run));
    for (int64_t row = 0; row < count; ++row) {
      std::memcpy(out + (first + row) * run, scratch.data() + row * stride, static_cast<size_t>(run));
    }
  }
}

}  // namespace ms::convert::detail
