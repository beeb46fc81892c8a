// How boxes travel from one rank to another: cut into runs of bytes that both ends agree on without a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ms::ckpt {

// What one message carries, of at most slice_bytes in all, one piece after the other.
struct SlicePiece {
  size_t box = 0;
  int64_t begin = 0, size = 0;  // bytes of it
};
using Slice = std::vector<SlicePiece>;

inline int64_t bytes_of(const Slice& slice) {
  int64_t bytes = 0;
  for (const SlicePiece& piece : slice) bytes += piece.size;
  return bytes;
}

// Boxes of 64 KiB and more come first, in order, each in messages of its own; then the small ones, many to a message.
// A box's bytes are in rising order.
class Slices {
 public:
  // box_bytes: size of each box; slice_bytes: > 0, need not be a multiple of anything.
  Slices(std::vector<int64_t> box_bytes, int64_t slice_bytes);
  // The next slice; empty behind the last.
  Slice next();
  int64_t largest() const;  // bytes of the largest of all

 private:
  bool is_small(size_t box) const;
  std::vector<int64_t> box_bytes_;
  int64_t slice_bytes_;
  size_t box_ = 0;
  int64_t at_ = 0;
  bool small_ = false;  // the second round
};

}  // namespace ms::ckpt
