#include "core/printable.h"

#include <algorithm>

#include "core/error.h"

namespace ms::core {
namespace {

constexpr size_t kMaxValueBytes = 200;
constexpr size_t kMaxWordBytes = 400, kWordBegin = 240, kWordEnd = 120;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }
bool is_within_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }  // of UTF-8

// Appends a word, or both its ends.
void append_word(std::string& out, std::string_view word) {
  if (word.size() <= kMaxWordBytes) {
    out += word;
    return;
  }
  size_t begin = kWordBegin, end = word.size() - kWordEnd;
  while (begin > 0 && is_within_character(word[begin])) --begin;
  while (end < word.size() && is_within_character(word[end])) ++end;
  out += cat(word.substr(0, begin), "..", word.substr(end));
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text.substr(0, kMaxValueBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_control(c)) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + (text.size() > kMaxValueBytes ? "...\"" : "\"");
}

std::string shown_value(std::string_view value) {
  const bool is_word = !value.empty() && value.size() <= kMaxValueBytes &&
                       std::ranges::none_of(value, [](char c) { return c == ' ' || is_control(c); });
  return is_word ? std::string(value) : printable(value);
}

void require_one_of(std::string_view flag, std::string_view value, std::initializer_list<const char*> values,
                    std::string_view more) {
  if (std::ranges::find(values, value) != values.end()) return;
  std::string list;
  for (const std::string_view one : values) {
    if (one.empty()) continue;
    list += cat(list.empty() ? "" : one == *(values.end() - 1) ? " or " : ", ", one);
  }
  throw Error(ErrorCode::kInvalidArgument, cat(flag, " ", shown_value(value), ": expected ", list, more));
}

std::string without_long_words(std::string_view text) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const bool blank = is_blank(text[begin]);
    size_t end = begin;
    while (end < text.size() && is_blank(text[end]) == blank) ++end;
    if (blank) {
      out += text.substr(begin, end - begin);
    } else {
      append_word(out, text.substr(begin, end - begin));
    }
    begin = end;
  }
  return out;
}

std::string counted(int64_t count, std::string_view noun) { return cat(count, " ", noun, count == 1 ? "" : "s"); }

}  // namespace ms::core
