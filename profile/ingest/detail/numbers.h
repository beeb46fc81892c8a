// Numbers of traces, exactly: microseconds to nanoseconds, and whole numbers, from JSON numbers or strings of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ms::profile::detail {

// Decimal text of microseconds ("1736408883696741.123", "1.25e3") as nanoseconds, rounded half away from zero. Nothing
// for what is no number, or from 2^62 ns on.
std::optional<int64_t> microseconds_to_ns(std::string_view text);
// The same for who reads many, kNoTime for nothing: compilers pass an optional through memory, and wait for it there.
inline constexpr int64_t kNoTime = INT64_MIN;
int64_t ns_of_microseconds(std::string_view text);

// Decimal or hexadecimal ("0x10") whole number; 2^64 - 1 and the like wrap to -1. Nothing for anything else.
std::optional<int64_t> whole_number(std::string_view text);

// The number of a stream: as above, else the first digits in the text ("stream 7 (compute)"). 2^32 - 1 means -1.
std::optional<int64_t> stream_number(std::string_view text);

}  // namespace ms::profile::detail
