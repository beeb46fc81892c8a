#include "profile/ingest/detail/json_window.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

namespace ms::profile::detail {

bool JsonWindow::borrow() {
  std::copy(text_, text_ + end_, left_.begin());
  const std::span<char> loan = stream_->lend();
  if (loan.empty()) return false;
  text_ = std::copy_backward(left_.begin(), left_.begin() + end_, loan.data());
  end_ += loan.size();
  read_ += static_cast<int64_t>(loan.size());
  return true;
}

void JsonWindow::own() {
  const size_t bytes = std::bit_ceil(std::max(kFirstBytes, end_)) + kScanPadding;
  if (buffer_.size() < bytes) {
    std::vector<char> larger(bytes);
    std::copy(text_, text_ + end_, larger.begin());
    buffer_.swap(larger);
  } else if (text_ != buffer_.data()) {
    std::memmove(buffer_.data(), text_, end_);
  }
  text_ = buffer_.data();
}

bool JsonWindow::refill() {
  squeezed_from_ += static_cast<int64_t>(begin_);
  squeezed_ -= std::min(begin_, squeezed_);
  text_ += begin_;
  end_ -= begin_;
  begin_ = 0;
  if (stream_->lends() && end_ <= left_.size()) return borrow();
  own();
  const size_t capacity = buffer_.size() - kScanPadding;
  if (end_ > capacity / 2) {
    squeeze();
    if (end_ > capacity / 2 && capacity < kMaxBytes) {
      buffer_.resize(2 * capacity + kScanPadding);
      text_ = buffer_.data();
    }
    if (full()) return false;
  }
  // A long event is scanned again from its first byte after each refill, which takes quadratic time unless the text
  // about doubles.
  const bool fill = end_ >= kFirstBytes;
  size_t all = 0;
  for (size_t got = 1; got > 0 && end_ < buffer_.size() - kScanPadding && (fill || all == 0); all += got) {
    got = stream_->read(text_ + end_, buffer_.size() - kScanPadding - end_);
    end_ += got;
  }
  read_ += static_cast<int64_t>(all);
  std::memset(text_ + end_, 0, kScanPadding);
  return all > 0;
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
  if (begin_ < squeezed_ || offset < this->offset() || offset > read_) {
    if (std::unique_ptr<ByteStream> there = stream_->from(offset)) return restart(std::move(there), offset);
    while (read_ < offset) {
      begin_ = end_;
      if (!refill()) return;
    }
  }
  begin_ = end_ - static_cast<size_t>(read_ - offset);
}

void JsonWindow::restart(std::unique_ptr<ByteStream> stream, int64_t offset) {
  own_ = std::move(stream);
  stream_ = own_.get();
  text_ = nullptr;
  begin_ = end_ = squeezed_ = 0;
  read_ = offset;
}

void JsonWindow::squeeze() {
  squeezed_from_ = offset();
  size_t to = 0;
  bool in_string = false;
  for (size_t from = 0; from < end_; ++from) {
    const char c = text_[from];
    if (!in_string && static_cast<unsigned char>(c) <= ' ') continue;
    text_[to++] = c;
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string && c == '\\' && from + 1 < end_) {
      text_[to++] = text_[++from];
    }
  }
  squeezed_ = to < end_ ? to : squeezed_;
  end_ = to;
}

}  // namespace ms::profile::detail
