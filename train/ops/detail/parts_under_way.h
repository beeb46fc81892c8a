// Operators that communicate: rows in parts, of which some are on their way between ranks while others are computed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "core/error.h"
#include "core/tensor.h"

namespace ms::ops::detail {

template <class... Parts>
[[noreturn]] void refuse_argument(const Parts&... parts) {
  throw core::Error(core::ErrorCode::kInvalidArgument, core::cat(parts...));
}

// What ranks can add up (core/comm/communicator.h). what: "npu_x: x1".
inline void require_summable(const core::TensorView& x, std::string_view what) {
  if (x.dtype() == core::DType::kFp32 || x.dtype() == core::DType::kBf16) return;
  refuse_argument(what, " is ", core::dtype_name(x.dtype()), "; ranks add up fp32 and bf16");
}

inline void require_sum(std::string_view reduce_op, std::string_view what) {
  if (reduce_op != "sum") refuse_argument(what, ": reduce_op ", reduce_op, "; it may be sum");
}

struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Rows in consecutive parts of nearly equal size. asked: how many; 0: as many as stay large.
class RowParts {
 public:
  RowParts(int64_t rows, int64_t asked)
      : rows_(rows),
        count_(std::clamp<int64_t>(asked == 0 ? std::min(kMaxParts, rows / kLargeRows) : asked, 1,
                                   std::max<int64_t>(rows, 1))) {}
  int64_t size() const { return count_; }
  RowRange operator[](int64_t part) const { return {rows_ * part / count_, rows_ * (part + 1) / count_}; }
  // The part that has this row.
  int64_t of_row(int64_t row) const {
    int64_t part = 0;
    while (row >= (*this)[part].end) ++part;
    return part;
  }

 private:
  // As in core/layout/tensor_overlap.h: a part's product takes longer than a message's latency.
  static constexpr int64_t kLargeRows = 256, kMaxParts = 8;
  int64_t rows_, count_;
};

// Messages in the order in which they were posted, each of one part. finish(part) is called once it is complete. The
// buffers of all must outlive this.
class PartsUnderWay {
 public:
  explicit PartsUnderWay(std::function<void(int64_t part)> finish = {}) : finish_(std::move(finish)) {}
  void add(core::Work work) { works_.push_back(std::move(work)); }
  // Finishes those of which nothing has to be waited for.
  void poll() {
    while (done_ < works_.size() && works_[done_].test()) finish_next();
  }
  void finish_through(int64_t part) {
    while (done_ <= static_cast<size_t>(part)) finish_next();
  }
  void finish_all() {
    while (done_ < works_.size()) finish_next();
  }

 private:
  void finish_next() {
    works_[done_].wait();
    if (finish_) finish_(static_cast<int64_t>(done_));
    ++done_;
  }

  std::function<void(int64_t part)> finish_;
  std::vector<core::Work> works_;
  size_t done_ = 0;
};

}  // namespace ms::ops::detail
