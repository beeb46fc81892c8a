// Parses the numbers of traces exactly: microseconds to nanoseconds, and integers, from JSON numbers or strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ms::profile::detail {

// Converts decimal text in microseconds ("1736408883696741.123", "1.25e3") to nanoseconds, rounded half away from zero.
// Nullopt if it is not a number, or at least 2^62 ns.
std::optional<int64_t> microseconds_to_ns(std::string_view text);
// The same for hot loops, with kNoTime for nullopt: compilers pass an optional through memory, which stalls.
inline constexpr int64_t kNoTime = INT64_MIN;
int64_t ns_of_microseconds(std::string_view text);

// Parses a decimal or hexadecimal ("0x10") integer; 2^64 - 1 and similar wrap to -1. Nullopt for anything else.
std::optional<int64_t> whole_number(std::string_view text);

// Number of a stream: as above, else the first digits in the text ("stream 7 (compute)"). 2^32 - 1 becomes -1.
std::optional<int64_t> stream_number(std::string_view text);

}  // namespace ms::profile::detail
