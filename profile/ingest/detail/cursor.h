// Reads varints and fixed-size integers from untrusted bytes. Reads past the end return zeros and set ok() to false.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/trace/format.h"

namespace ms::profile::detail {

class Cursor {
 public:
  Cursor() = default;
  explicit Cursor(std::string_view bytes) : next_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool ok() const { return ok_; }
  size_t left() const { return static_cast<size_t>(end_ - next_); }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (next_ == end_) break;
      const auto byte = static_cast<uint8_t>(*next_++);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  int64_t svarint() { return core::trace::unzigzag(varint()); }

  template <class T>
  T fixed() {
    T value{};
    if (left() < sizeof(T)) {
      ok_ = false;
      next_ = end_;
      return value;
    }
    std::memcpy(&value, next_, sizeof(T));
    next_ += sizeof(T);
    return value;
  }

  std::string_view take(uint64_t size) {
    if (size > left()) {
      ok_ = false;
      next_ = end_;
      return {};
    }
    const std::string_view bytes(next_, size);
    next_ += size;
    return bytes;
  }

 private:
  const char* next_ = nullptr;
  const char* end_ = nullptr;
  bool ok_ = true;
};

// Reads the numbers of a split column (core/trace/split_number.h).
class SplitCursor {
 public:
  SplitCursor() = default;
  SplitCursor(std::string_view sizes, std::string_view bits) : sizes_(sizes), bits_(bits) {}

  bool ok() const { return sizes_.ok() && ok_; }

  int64_t next() {
    const auto byte = sizes_.fixed<uint8_t>();
    const int code = byte & 0x7f, low = std::max(0, code / 2 - 1);
    const uint64_t magnitude = static_cast<uint64_t>(code - 2 * low) << low | take_bits(low);
    return static_cast<int64_t>((byte & 0x80) != 0 ? ~magnitude + 1 : magnitude);
  }

 private:
  uint64_t take_bits(int count) {
    if (count == 0) return 0;
    const size_t first = at_ / 8, skipped = at_ % 8;
    if (static_cast<size_t>(count) > 8 * bits_.size() - at_) {
      ok_ = false;
      return 0;
    }
    at_ += static_cast<size_t>(count);
    uint64_t value = 0;
    std::memcpy(&value, bits_.data() + first, std::min<size_t>(8, bits_.size() - first));
    value >>= skipped;
    if (skipped + static_cast<size_t>(count) > 64) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(bits_[first + 8])) << (64 - skipped);
    }
    return value & ((uint64_t{1} << count) - 1);
  }
  Cursor sizes_;
  std::string_view bits_;
  size_t at_ = 0;  // bit offset
  bool ok_ = true;
};

}  // namespace ms::profile::detail
