// Reads the fields of a message in protobuf's wire format from untrusted bytes.
//
//   for (FieldReader in(message); in.next();) switch (in.field()) { ... }
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "profile/ingest/detail/cursor.h"

namespace ms::profile::detail {

class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : in_(message) {}

  // Returns false at the end of the message, and at damage, where ok() is false.
  bool next() {
    if (in_.left() == 0 || !in_.ok()) return false;
    const uint64_t tag = in_.varint();
    field_ = tag >> 3 <= kMaxField ? static_cast<uint32_t>(tag >> 3) : 0;
    bytes_ = {};
    integer_ = 0;
    switch (tag & 7) {
      case 0:
        integer_ = in_.varint();
        break;
      case 1:
        integer_ = in_.fixed<uint64_t>();
        break;
      case 2:
        bytes_ = in_.take(in_.varint());
        break;
      case 5:
        integer_ = in_.fixed<uint32_t>();
        break;
      default:
        field_ = 0;
    }
    ok_ = field_ != 0 && in_.ok();
    return ok_;
  }
  bool ok() const { return ok_; }
  size_t left() const { return in_.left(); }  // bytes after the current field; 0 if the message ends within one

  // The current field. A value requested as another type than it has is 0, or empty.
  uint32_t field() const { return field_; }
  uint64_t integer() const { return integer_; }
  int64_t signed_integer() const { return static_cast<int64_t>(integer_); }
  double real() const { return std::bit_cast<double>(integer_); }
  std::string_view bytes() const { return bytes_; }

 private:
  static constexpr uint64_t kMaxField = (uint64_t{1} << 29) - 1;

  Cursor in_;
  bool ok_ = true;
  uint32_t field_ = 0;
  uint64_t integer_ = 0;
  std::string_view bytes_;
};

}  // namespace ms::profile::detail
