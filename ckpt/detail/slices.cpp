#include "ckpt/detail/slices.h"

#include <algorithm>

#include "ckpt/detail/rank_file.h"
#include "core/error.h"
#include "core/io/bulk_writer.h"

namespace ms::ckpt {
namespace {

int64_t padded(int64_t end, int64_t box_bytes) {
  const int64_t alignment = box_bytes < kPackedBelow ? 1 : core::kDirectAlignment;
  return (end + alignment - 1) / alignment * alignment;
}

}  // namespace

Slices::Slices(std::vector<int64_t> box_bytes, int64_t slice_bytes)
    : box_bytes_(std::move(box_bytes)), slice_bytes_(slice_bytes) {
  MS_CHECK(slice_bytes_ > 0, "slices of ", slice_bytes_, " bytes");
}

Slice Slices::next() {
  Slice slice;
  for (int64_t end = 0; box_ < box_bytes_.size(); ++box_, at_ = 0) {
    const int64_t total = box_bytes_[box_], begin = padded(end, total);
    if (begin >= slice_bytes_) break;
    const int64_t size = std::min(slice_bytes_ - begin, total - at_);
    slice.push_back({box_, at_, size, begin});
    end = begin + size;
    at_ += size;
    if (at_ < total) break;
  }
  return slice;
}

int64_t Slices::largest() const {
  int64_t end = 0;
  for (const int64_t bytes : box_bytes_) end = padded(end, bytes) + bytes;
  return std::min(slice_bytes_, end);
}

}  // namespace ms::ckpt
