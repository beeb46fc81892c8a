// Splits boxes into messages for a transfer between ranks: one stream of bytes, cut the same way on both ends without
// negotiation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckpt/copy_box.h"

namespace ms::ckpt {

struct SlicePiece {
  size_t box = 0;
  int64_t begin = 0, size = 0;  // bytes of the box
  int64_t at = 0;               // offset in the message
};

// Content of one message: part of one box, or several boxes in order.
using Slice = std::vector<SlicePiece>;

inline int64_t bytes_of(const Slice& slice) { return slice.back().at + slice.back().size; }

class Slices {
 public:
  // box_bytes: size of each box; slice_bytes: maximum size of a message, > 0. Boxes with their own dataset start at
  // multiples of core::kDirectAlignment in a message, as in a file.
  Slices(std::vector<int64_t> box_bytes, int64_t slice_bytes);
  // The next slice; empty after the last one.
  Slice next();
  int64_t largest() const;  // maximum size of a message in bytes

 private:
  std::vector<int64_t> box_bytes_;
  int64_t slice_bytes_;
  size_t box_ = 0;
  int64_t at_ = 0;  // offset in that box
};

}  // namespace ms::ckpt
