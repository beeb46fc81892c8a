// Reads varints and fixed integers from bytes that may end, or lie, anywhere. Past the end it gives zeros and says so.
#pragma once

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

}  // namespace ms::profile::detail
