// Appends message fields in protobuf's wire format to a string: a tag (field number and wire type), then the value.
//
// Encode an inner message first and append it with put_bytes, which needs its length.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/trace/format.h"

namespace ms::profile::protobuf {

// Wire types. Groups (3 and 4) are deprecated.
inline constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

inline void put_tag(std::string& out, uint32_t field, uint32_t type) {
  core::trace::put_varint(out, uint64_t{field} << 3 | type);
}
// Integers, enumerations and booleans. Negative integers take ten bytes.
inline void put_integer(std::string& out, uint32_t field, uint64_t value) {
  put_tag(out, field, kVarint);
  core::trace::put_varint(out, value);
}
inline void put_signed(std::string& out, uint32_t field, int64_t value) {
  put_integer(out, field, static_cast<uint64_t>(value));
}
inline void put_fixed64(std::string& out, uint32_t field, uint64_t value) {
  put_tag(out, field, kFixed64);
  core::trace::put_fixed(out, value);
}
inline void put_double(std::string& out, uint32_t field, double value) {
  put_fixed64(out, field, std::bit_cast<uint64_t>(value));
}
// Strings and messages.
inline void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_tag(out, field, kBytes);
  core::trace::put_varint(out, bytes.size());
  out += bytes;
}

}  // namespace ms::profile::protobuf
