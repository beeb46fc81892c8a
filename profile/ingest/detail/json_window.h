// A window over a stream of JSON text: the bytes read and not yet consumed, with padding for block loads. Text that a
// stream lends is used in place; the unconsumed rest of a loan is copied in front of the next one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "profile/ingest/byte_stream.h"
#include "profile/ingest/detail/event_scan.h"

namespace ms::profile::detail {

class JsonWindow {
 public:
  // Maximum length of a token or event; white space between and inside them does not count.
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  // offset: file offset of the stream's first byte.
  explicit JsonWindow(ByteStream& stream, int64_t offset = 0) : stream_(&stream), read_(offset) {}

  const char* begin() const { return text_ + begin_; }
  const char* end() const { return text_ + end_; }
  void use_up_to(const char* position) { begin_ = static_cast<size_t>(position - text_); }

  // Appends more text; begin() may move. Returns false at the end of the stream, or when the window is full. Text
  // beyond 256 KiB about doubles, so that scanning again after each refill takes linear time.
  bool refill();
  bool full() const { return end_ - begin_ == kMaxBytes; }
  // Skips white space, reading on as needed. Returns false at the end of the stream.
  bool skip_space() {
    constexpr size_t kFew = 8;  // a line end and its indentation
    for (size_t i = begin_; i < end_ && i < begin_ + kFew; ++i) {
      if (static_cast<unsigned char>(text_[i]) <= ' ') continue;
      begin_ = i;
      return true;
    }
    return skip_more_space();
  }
  // Consumes everything up to the end of the stream.
  void drain();

  // Continues at byte `offset`, which is not before the window. Call only if can_go().
  void go_to(int64_t offset);
  // False if begin() is not at a known byte of the stream, or the window has been squeezed after it and the stream
  // cannot be read from any offset (ByteStream::from).
  bool can_go() const { return exact() && (begin_ >= squeezed_ || stream_->size() >= 0); }

  // File offset of begin(). Inside squeezed text it is approximate: a little too low, but not before the squeezed text.
  int64_t offset() const {
    return begin_ >= squeezed_ ? read_ - static_cast<int64_t>(end_ - begin_)
                               : squeezed_from_ + static_cast<int64_t>(begin_);
  }
  bool exact() const { return begin_ == 0 || begin_ >= squeezed_; }
  int64_t bytes_read() const { return read_; }

 private:
  static constexpr size_t kFirstBytes = size_t{1} << 18;
  static_assert(ByteStream::kBehind >= kScanPadding);
  bool skip_more_space();
  void restart(std::unique_ptr<ByteStream> stream, int64_t offset);
  bool borrow();   // copies the rest in front of the stream's next loan
  void own();      // copies the rest into the buffer
  void squeeze();  // removes white space outside strings

  ByteStream* stream_;
  std::unique_ptr<ByteStream> own_;  // after go_to
  std::vector<char> buffer_;
  char* text_ = nullptr;  // in the buffer, or lent
  size_t begin_ = 0, end_ = 0;
  size_t squeezed_ = 0;        // bytes at the front of the text that no longer match the stream
  int64_t squeezed_from_ = 0;  // offset in the stream where they began
  int64_t read_ = 0;
  std::array<char, ByteStream::kBefore> left_;  // the rest between two loans
};

}  // namespace ms::profile::detail
