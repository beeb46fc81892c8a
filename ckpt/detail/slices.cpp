#include "ckpt/detail/slices.h"

#include <algorithm>

#include "ckpt/detail/rank_file.h"
#include "core/error.h"

namespace ms::ckpt {

Slices::Slices(std::vector<int64_t> box_bytes, int64_t slice_bytes)
    : box_bytes_(std::move(box_bytes)), slice_bytes_(slice_bytes) {
  MS_CHECK(slice_bytes_ > 0, "slices of ", slice_bytes_, " bytes");
}

bool Slices::is_small(size_t box) const { return box_bytes_[box] < std::min(kPackedBelow, slice_bytes_); }

Slice Slices::next() {
  Slice slice;
  int64_t room = slice_bytes_;
  while (room > 0) {
    if (box_ == box_bytes_.size()) {
      if (small_ || !slice.empty()) break;
      small_ = true;
      box_ = 0;
      continue;
    }
    if (is_small(box_) != small_ || at_ == box_bytes_[box_]) {
      ++box_;
      at_ = 0;
      continue;
    }
    const int64_t size = std::min(room, box_bytes_[box_] - at_);
    slice.push_back({box_, at_, size});
    at_ += size;
    room -= size;
    if (!small_) break;
  }
  return slice;
}

int64_t Slices::largest() const {
  int64_t large = 0, small = 0;
  for (size_t box = 0; box < box_bytes_.size(); ++box) {
    if (is_small(box)) {
      small += box_bytes_[box];
    } else {
      large = std::max(large, box_bytes_[box]);
    }
  }
  return std::min(slice_bytes_, std::max(large, small));
}

}  // namespace ms::ckpt
