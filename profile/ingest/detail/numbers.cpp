#include "profile/ingest/detail/numbers.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace ms::profile::detail {
namespace {

bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

template <class Word>
Word word_at(const char* p) {
  Word word = 0;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

constexpr uint64_t kZeros = 0x3030303030303030;  // the text 00000000

// Parses eight digits at once, as the bytes of a word; returns false if one is not a digit.
bool eight_digits(uint64_t word, uint64_t& value) {
  constexpr uint64_t kHigh = 0xf0f0f0f0f0f0f0f0;
  if ((word & kHigh) != kZeros || ((word + 0x0606060606060606) & kHigh) != kZeros) return false;
  word -= kZeros;
  word = word * 10 + (word >> 8);  // pairs, then fours, then all; the first digit is the lowest byte
  value =
      ((word & 0x000000ff000000ff) * 0x000f424000000064 + (word >> 16 & 0x000000ff000000ff) * 0x0000271000000001) >> 32;
  return true;
}

// The first n characters of a word, 1 to 8, with leading zeros to a width of eight.
uint64_t with_zeros(uint64_t word, size_t n) { return word << (64 - 8 * n) | kZeros >> 4 * n >> 4 * n; }

// Parses the n characters at p, 1 to 16, as a number, without a branch per digit; returns false if one is not a digit.
// readable: number of readable bytes from p on, at least n and 4.
[[gnu::always_inline]] inline bool digits(const char* p, size_t n, size_t readable, uint64_t& value) {
  const uint64_t first = readable >= 8 ? word_at<uint64_t>(p)
                                       : word_at<uint32_t>(p) | uint64_t{word_at<uint32_t>(p + readable - 4)}
                                                                    << 8 * (readable - 4);
  if (n <= 8) return eight_digits(with_zeros(first, n), value);
  uint64_t high = 0;
  if (!eight_digits(with_zeros(first, n - 8), high) || !eight_digits(word_at<uint64_t>(p + n - 8), value)) return false;
  value += high * 100'000'000;
  return true;
}

// The common form of profilers, "digits.ddd" or digits alone, in thousandths.
[[gnu::always_inline]] inline bool common_form(std::string_view text, uint64_t& value) {
  if (std::endian::native != std::endian::little || text.size() < 4 || text.size() > 20) return false;
  const size_t n = text.size() - 4;
  const uint32_t last = word_at<uint32_t>(text.data() + n);
  const uint32_t decimals = (last >> 8) - 0x303030;  // after the point, one per byte
  if ((last & 0xff) != '.' || ((decimals | (decimals + 0x767676)) & 0x808080) != 0) {
    const bool all = text.size() <= 16 && digits(text.data(), text.size(), text.size(), value);
    value *= 1000;
    return all;
  }
  if (n == 0 || !digits(text.data(), n, text.size(), value)) return false;
  value = value * 1000 + (decimals & 0xff) * 100 + (decimals >> 8 & 0xff) * 10 + (decimals >> 16);
  return true;
}

// Any number of digits, any exponent.
std::optional<int64_t> slow(std::string_view text) {
  bool negative = false;
  size_t i = 0;
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) negative = text[i++] == '-';
  uint64_t value = 0;
  int kept = 0;             // digits in `value`, from the first that is not 0
  int64_t after_point = 0;  // of these and of the zeros before them
  int next_digit = -1;      // the first digit that does not fit
  bool any = false, point = false;
  int64_t dropped = 0;
  for (; i < text.size(); ++i) {
    if (text[i] == '.' && !point) {
      point = true;
      continue;
    }
    if (!is_digit(text[i])) break;
    any = true;
    if (kept == 19) {
      if (next_digit < 0) next_digit = text[i] - '0';
      if (!point) ++dropped;
      continue;
    }
    value = value * 10 + static_cast<uint64_t>(text[i] - '0');
    if (value > 0) ++kept;
    if (point) ++after_point;
  }
  if (!any) return std::nullopt;
  int64_t exponent = 0;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    if (++i < text.size() && text[i] == '+') ++i;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), exponent);
    if (error == std::errc::invalid_argument) return std::nullopt;
    if (error == std::errc::result_out_of_range) exponent = text[i] == '-' ? -100'000 : 100'000;
    i = static_cast<size_t>(end - text.data());
  }
  if (i != text.size()) return std::nullopt;
  if (value == 0) return 0;
  int64_t shift = std::clamp<int64_t>(exponent, -100'000, 100'000) + 3 + dropped - after_point;
  // value * 10^shift. If digits were dropped, 19 are kept, so a shift > 0 is out of range; a shift of 0 rounds by
  // next_digit.
  if (shift >= 0) {
    if (shift == 0 && next_digit >= 5) ++value;
    for (; shift > 0; --shift) {
      if (value >= (uint64_t{1} << 62) / 10 + 1) return std::nullopt;
      value *= 10;
    }
  } else {
    int last = 0;
    for (; shift < 0 && value > 0; ++shift) {
      last = static_cast<int>(value % 10);
      value /= 10;
    }
    if (shift < 0) last = 0;
    if (last >= 5) ++value;
  }
  if (value >= uint64_t{1} << 62) return std::nullopt;
  return negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
}

}  // namespace

std::optional<int64_t> microseconds_to_ns(std::string_view text) {
  const int64_t ns = ns_of_microseconds(text);
  return ns == kNoTime ? std::nullopt : std::optional(ns);
}

int64_t ns_of_microseconds(std::string_view text) {
  constexpr uint64_t kMax = uint64_t{1} << 62;
  uint64_t value = 0;
  if (common_form(text, value)) return value < kMax ? static_cast<int64_t>(value) : kNoTime;
  // -?digits(.digits{1,3})?
  const char *p = text.data(), *end = p + text.size();
  const bool negative = p < end && *p == '-';
  if (negative) ++p;
  const char* first = p;
  value = 0;
  while (p < end && is_digit(*p)) value = value * 10 + static_cast<uint64_t>(*p++ - '0');
  if (p == first || p - first > 15 + 1) return slow(text).value_or(kNoTime);
  int decimals = 0;
  if (p < end && *p == '.') {
    ++p;
    while (p < end && decimals < 3 && is_digit(*p)) {
      value = value * 10 + static_cast<uint64_t>(*p++ - '0');
      ++decimals;
    }
    if (decimals == 0) return slow(text).value_or(kNoTime);
  }
  if (p != end) return slow(text).value_or(kNoTime);
  for (; decimals < 3; ++decimals) value *= 10;
  if (value >= kMax) return kNoTime;
  return negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
}

std::optional<int64_t> whole_number(std::string_view text) {
  constexpr size_t kShort = 18;  // digits that always fit
  if (!text.empty() && text.size() <= kShort) {
    int64_t value = 0;
    size_t i = 0;
    for (; i < text.size() && is_digit(text[i]); ++i) value = value * 10 + (text[i] - '0');
    if (i == text.size()) return value;
  }
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return static_cast<int64_t>(negative ? uint64_t{0} - value : value);
}

std::optional<int64_t> stream_number(std::string_view text) {
  std::optional<int64_t> number = whole_number(text);
  if (!number) {
    const auto first = std::find_if(text.begin(), text.end(), is_digit);
    const auto last = std::find_if_not(first, text.end(), is_digit);
    number = whole_number(std::string_view(first, last));
  }
  if (number == int64_t{UINT32_MAX}) number = -1;
  return number;
}

}  // namespace ms::profile::detail
