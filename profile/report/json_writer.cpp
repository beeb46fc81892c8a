#include "profile/report/json_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

namespace ms::profile {
namespace {

// Length of the well-formed UTF-8 sequence at text[i], 0 if there is none.
size_t utf8_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char first = byte(i);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (length == 0 || i + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(i + 1) < 0xa0) return 0;  // longer than needed
  if (first == 0xed && byte(i + 1) > 0x9f) return 0;  // surrogates
  if (first == 0xf0 && byte(i + 1) < 0x90) return 0;
  if (first == 0xf4 && byte(i + 1) > 0x8f) return 0;
  return length;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    out += length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(i, length);
    i += std::max<size_t>(length, 1);
  }
  return out;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t length = utf8_length(text, i);
    if (length == 0) {
      out += "\xef\xbf\xbd";
      ++i;
      continue;
    }
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += text.substr(i, length);
    }
    i += length;
  }
  return out + '"';
}

std::string microseconds(int64_t ns) {
  const uint64_t magnitude = ns < 0 ? uint64_t{0} - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  char text[32];
  char* end = text;
  if (ns < 0) *end++ = '-';
  end = std::to_chars(end, text + sizeof(text), magnitude / 1000).ptr;
  const auto fraction = static_cast<int>(magnitude % 1000);
  *end++ = '.';
  for (const int digit : {fraction / 100, fraction / 10 % 10, fraction % 10}) *end++ = static_cast<char>('0' + digit);
  return std::string(text, end);
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  out_ += json_string(name);
  out_ += pretty_ ? ": " : ":";
  after_key_ = true;
  return *this;
}

void JsonWriter::decimal(double number, int decimals) {
  if (!std::isfinite(number)) return null();
  char text[400];
  std::snprintf(text, sizeof(text), "%.*f", decimals, number);
  raw(text);
}

void JsonWriter::percent(int64_t part, int64_t whole) {
  if (whole == 0) return null();
  decimal(100.0 * static_cast<double>(part) / static_cast<double>(whole), 4);
}

std::string JsonWriter::take() {
  out_ += '\n';
  return std::exchange(out_, {});
}

void JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  has_members_.push_back(false);
}

void JsonWriter::close(char bracket) {
  const bool had = has_members_.back();
  has_members_.pop_back();
  if (pretty_ && had) new_line();
  out_ += bracket;
}

void JsonWriter::raw(std::string_view text) {
  separate();
  out_ += text;
}

void JsonWriter::separate() {
  if (std::exchange(after_key_, false) || has_members_.empty()) return;
  if (has_members_.back()) out_ += ',';
  has_members_.back() = true;
  if (pretty_) new_line();
}

void JsonWriter::new_line() {
  out_ += '\n';
  out_.append(2 * has_members_.size(), ' ');
}

}  // namespace ms::profile
