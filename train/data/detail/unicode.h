// The parts of Unicode that byte-level BPE needs: UTF-8, the categories of the pre-tokenizers' patterns, and NFC.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ms::train::detail {

enum class CharClass : uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };  // \p{L}, \p{N}, \s
CharClass char_class(uint32_t code_point);

struct CodePoint {
  uint32_t value;
  int size_bytes;  // 1 to 4
};
// The character at the start of text, which must be well-formed UTF-8 and not empty.
CodePoint decode_utf8(std::string_view text);
// Same, for the last character.
CodePoint decode_last_utf8(std::string_view text);
void append_utf8(uint32_t code_point, std::string& out);

// Offset of the first byte that is not well-formed UTF-8, or text.size().
size_t find_malformed_utf8(std::string_view text);
// Malformed sequences replaced by U+FFFD, one each, as Python's errors="replace" does; counts them.
std::string replace_malformed_utf8(std::string_view text, int64_t& replaced);

// Normalization form C of well-formed text. Returns false and does not change `out` if text is already in it.
bool normalize_nfc(std::string_view text, std::string& out);

}  // namespace ms::train::detail
