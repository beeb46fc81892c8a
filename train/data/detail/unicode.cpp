#include "train/data/detail/unicode.h"

#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

namespace ms::train::detail {
namespace {

#include "train/data/detail/unicode_tables.inc"

// Third column of the row whose range contains code_point, or 0.
template <size_t N>
uint32_t look_up(const std::array<std::array<uint32_t, 3>, N>& rows, uint32_t code_point) {
  const auto row = std::upper_bound(rows.begin(), rows.end(), code_point,
                                    [](uint32_t value, const auto& r) { return value < r[0]; });
  if (row == rows.begin() || (*(row - 1))[1] < code_point) return 0;
  return (*(row - 1))[2];
}

// One byte per code point of the basic plane, which covers nearly all text.
struct BasicPlane {
  BasicPlane() {
    for (const auto& [first, last, value] : kCategories) {
      for (uint32_t c = first; c <= last && c < classes.size(); ++c) classes[c] = static_cast<CharClass>(value);
    }
  }
  std::array<CharClass, 0x10000> classes{};
};

constexpr uint32_t kHangulBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr uint32_t kLCount = 19, kVCount = 21, kTCount = 28, kHangulCount = kLCount * kVCount * kTCount;

uint64_t pair_key(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

// The tables for NFC, built on first use.
struct Nfc {
  Nfc() {
    for (const auto& [composed, first, second, recompose] : kDecompositions) {
      decomposition[composed] = {first, second};
      if (recompose == 0) active[composed] = true;
      if (recompose == 1) {
        composition[pair_key(first, second)] = composed;
        active[second] = true;
      }
    }
    for (const auto& [first, last, value] : kCombiningClasses) {
      for (uint32_t c = first; c <= last; ++c) combining[c] = static_cast<uint8_t>(value);
    }
  }
  // True if NFC may change text that contains c.
  bool may_change(uint32_t c) const {
    if (c < 0x300) return false;
    if (c >= kVBase && c < kTBase + kTCount) return true;
    return active.contains(c) || combining.contains(c);
  }
  uint8_t combining_class(uint32_t c) const {
    const auto found = combining.find(c);
    return found == combining.end() ? 0 : found->second;
  }
  void decompose(uint32_t c, std::vector<uint32_t>& out) const {
    if (c >= kHangulBase && c < kHangulBase + kHangulCount) {
      const uint32_t s = c - kHangulBase;
      out.push_back(kLBase + s / (kVCount * kTCount));
      out.push_back(kVBase + s / kTCount % kVCount);
      if (s % kTCount != 0) out.push_back(kTBase + s % kTCount);
      return;
    }
    const auto found = c < 0xC0 ? decomposition.end() : decomposition.find(c);
    if (found == decomposition.end()) {
      out.push_back(c);
      return;
    }
    decompose(found->second[0], out);
    if (found->second[1] != 0) decompose(found->second[1], out);
  }
  uint32_t compose(uint32_t first, uint32_t second) const {
    if (first >= kLBase && first < kLBase + kLCount && second >= kVBase && second < kVBase + kVCount) {
      return kHangulBase + ((first - kLBase) * kVCount + (second - kVBase)) * kTCount;
    }
    if (first >= kHangulBase && first < kHangulBase + kHangulCount && (first - kHangulBase) % kTCount == 0 &&
        second > kTBase && second < kTBase + kTCount) {
      return first + (second - kTBase);
    }
    const auto found = composition.find(pair_key(first, second));
    return found == composition.end() ? 0 : found->second;
  }
  std::unordered_map<uint32_t, std::array<uint32_t, 2>> decomposition;
  std::unordered_map<uint64_t, uint32_t> composition;
  std::unordered_map<uint32_t, uint8_t> combining;
  std::unordered_map<uint32_t, bool> active;
};

const Nfc& nfc() {
  static const auto tables = std::make_unique<const Nfc>();
  return *tables;
}

// Length of the well-formed sequence at the start of text (RFC 3629), or minus the number of bytes to replace by one
// U+FFFD.
int sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // After these lead bytes the second byte has a smaller range: no overlong forms, no surrogates, nothing above
  // U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i < length; ++i) {
    const auto at = static_cast<size_t>(i);
    const bool good = at < text.size() && byte(at) >= (i == 1 ? low : 0x80) && byte(at) <= (i == 1 ? high : 0xBF);
    if (!good) return -i;
  }
  return length;
}

}  // namespace

CharClass char_class(uint32_t code_point) {
  static const auto basic = std::make_unique<const BasicPlane>();
  if (code_point < 0x10000) return basic->classes[code_point];
  return static_cast<CharClass>(look_up(kCategories, code_point));
}

CodePoint decode_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

CodePoint decode_last_utf8(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return decode_utf8(text.substr(at));
}

void append_utf8(uint32_t c, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

size_t find_malformed_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const int length = sequence_length(text.substr(at));
    if (length < 0) return at;
    at += static_cast<size_t>(length);
  }
  return at;
}

std::string replace_malformed_utf8(std::string_view text, int64_t& replaced) {
  std::string out;
  for (;;) {
    const size_t bad = find_malformed_utf8(text);
    out += text.substr(0, bad);
    if (bad == text.size()) return out;
    out += "\xEF\xBF\xBD";
    ++replaced;
    text.remove_prefix(bad + static_cast<size_t>(-sequence_length(text.substr(bad))));
  }
}

bool normalize_nfc(std::string_view text, std::string& out) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; })) {
    return false;  // no character at or above U+0300
  }
  const Nfc& tables = nfc();
  bool change = false;
  for (std::string_view rest = text; !rest.empty() && !change;) {
    const CodePoint c = decode_utf8(rest);
    change = tables.may_change(c.value);
    rest.remove_prefix(static_cast<size_t>(c.size_bytes));
  }
  if (!change) return false;

  std::vector<uint32_t> chars;
  chars.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const CodePoint c = decode_utf8(rest);
    tables.decompose(c.value, chars);
    rest.remove_prefix(static_cast<size_t>(c.size_bytes));
  }
  // Canonical order: stable sort of each run of non-starters by class.
  std::vector<uint8_t> classes(chars.size());
  std::vector<std::pair<uint8_t, uint32_t>> run;
  for (size_t i = 0; i < chars.size(); ++i) {
    run.clear();
    for (size_t j = i; j < chars.size(); ++j) {
      const uint8_t combining = tables.combining_class(chars[j]);
      if (combining == 0) break;
      run.emplace_back(combining, chars[j]);
    }
    if (run.empty()) continue;
    std::stable_sort(run.begin(), run.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t j = 0; j < run.size(); ++j) {
      classes[i + j] = run[j].first;
      chars[i + j] = run[j].second;
    }
    i += run.size();
  }
  // Compose with the last starter, unless a character of the same or a higher class is between them (UAX 15).
  size_t length = 0;
  size_t starter = SIZE_MAX;
  for (size_t i = 0; i < chars.size(); ++i) {
    if (starter != SIZE_MAX) {
      const bool adjacent = length == starter + 1;
      const bool blocked = !adjacent && (classes[length - 1] >= classes[i]);
      const uint32_t composed = blocked ? 0 : tables.compose(chars[starter], chars[i]);
      if (composed != 0) {
        chars[starter] = composed;
        continue;
      }
    }
    chars[length] = chars[i];
    classes[length] = classes[i];
    if (classes[length] == 0) starter = length;
    ++length;
  }
  out.clear();
  for (size_t i = 0; i < length; ++i) append_utf8(chars[i], out);
  return true;
}

}  // namespace ms::train::detail
