#include "profile/ingest/detail/json_window.h"

#include <algorithm>
#include <cstring>

namespace ms::profile::detail {

bool JsonWindow::refill() {
  if (begin_ > 0) {
    squeezed_from_ += static_cast<int64_t>(begin_);
    squeezed_ -= std::min(begin_, squeezed_);
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t capacity = buffer_.size() - kScanPadding;
  if (end_ > capacity / 2) {
    squeeze();
    if (end_ > capacity / 2 && capacity < kMaxBytes) buffer_.resize(2 * capacity + kScanPadding);
    if (full()) return false;
  }
  const size_t got = stream_->read(buffer_.data() + end_, buffer_.size() - kScanPadding - end_);
  end_ += got;
  read_ += static_cast<int64_t>(got);
  std::memset(buffer_.data() + end_, 0, kScanPadding);
  return got > 0;
}

bool JsonWindow::skip_more_space() {
  while (true) {
    const char* next = detail::skip_space(begin(), end());
    use_up_to(next);
    if (next < end()) return true;
    if (!refill()) return false;
  }
}

void JsonWindow::drain() {
  do {
    begin_ = end_;
  } while (refill());
}

void JsonWindow::go_to(int64_t offset) {
  if (squeezed_ == 0 && offset >= this->offset() && offset <= read_) {
    begin_ = end_ - static_cast<size_t>(read_ - offset);
    return;
  }
  own_ = stream_->from(offset);
  stream_ = own_.get();
  begin_ = end_ = squeezed_ = 0;
  read_ = offset;
}

void JsonWindow::squeeze() {
  squeezed_from_ = offset();
  size_t to = 0;
  bool in_string = false;
  for (size_t from = 0; from < end_; ++from) {
    const char c = buffer_[from];
    if (!in_string && static_cast<unsigned char>(c) <= ' ') continue;
    buffer_[to++] = c;
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string && c == '\\' && from + 1 < end_) {
      buffer_[to++] = buffer_[++from];
    }
  }
  squeezed_ = to < end_ ? to : squeezed_;
  end_ = to;
}

}  // namespace ms::profile::detail
