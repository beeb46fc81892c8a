// How boxes travel from one rank to another: as one stream, cut into messages that both ends agree on without a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ms::ckpt {

struct SlicePiece {
  size_t box = 0;
  int64_t begin = 0, size = 0;  // bytes of the box
  int64_t at = 0;               // where they lie in the message
};

// What one message carries: of one box, or of several in their order.
using Slice = std::vector<SlicePiece>;

inline int64_t bytes_of(const Slice& slice) { return slice.back().at + slice.back().size; }

class Slices {
 public:
  // box_bytes: size of each box; slice_bytes: of a message at most, > 0. Boxes that have a dataset of their own begin
  // at multiples of core::kDirectAlignment in a message, as they do in a file.
  Slices(std::vector<int64_t> box_bytes, int64_t slice_bytes);
  // The next one; empty behind the last.
  Slice next();
  int64_t largest() const;  // bytes that a message has at most

 private:
  std::vector<int64_t> box_bytes_;
  int64_t slice_bytes_;
  size_t box_ = 0;
  int64_t at_ = 0;  // in that box
};

}  // namespace ms::ckpt
