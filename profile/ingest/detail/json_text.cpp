#include "profile/ingest/detail/json_text.h"

#include <charconv>
#include <optional>

namespace ms::profile::detail {
namespace {

// Four hexadecimal digits at `at`.
std::optional<uint32_t> hex4(std::string_view text, size_t at) {
  uint32_t value = 0;
  if (at + 4 > text.size()) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, value, 16);
  return error == std::errc() && end == text.data() + at + 4 ? std::optional(value) : std::nullopt;
}

void append_utf8(std::string& out, uint32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 63)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += {static_cast<char>(0xc0 | code >> 6), tail(0)};
  } else if (code < 0x10000) {
    out += {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  } else {
    out += {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
  }
}

}  // namespace

std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    constexpr std::string_view kFrom = "bfnrt", kTo = "\b\f\n\r\t";
    if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
      out += kTo[at];
      continue;
    }
    std::optional<uint32_t> code = c == 'u' ? hex4(text, i + 1) : std::nullopt;
    if (!code) {
      out += c;
      continue;
    }
    i += 4;
    if (*code >= 0xd800 && *code < 0xdc00 && text.substr(i + 1, 2) == "\\u") {
      const std::optional<uint32_t> low = hex4(text, i + 3);
      if (low && *low >= 0xdc00 && *low < 0xe000) {
        code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
        i += 6;
      }
    }
    append_utf8(out, *code);
  }
  return out;
}

}  // namespace ms::profile::detail
