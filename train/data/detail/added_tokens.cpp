#include "train/data/detail/added_tokens.h"

#include <algorithm>

#include "train/data/detail/unicode.h"

namespace ms::train::detail {

void AddedTokens::add(AddedToken token) {
  if (token.content.empty()) return;
  empty_ = false;
  const auto first = static_cast<uint8_t>(token.content[0]);
  for (size_t second = 0; second < 256; ++second) {
    if (token.content.size() == 1 || static_cast<uint8_t>(token.content[1]) == second)
      two_bytes_.set(first * 256U + second);
  }
  auto& tokens = by_first_byte_[first];
  const auto place = std::find_if(tokens.begin(), tokens.end(),
                                  [&](const AddedToken& other) { return other.content.size() < token.content.size(); });
  tokens.insert(place, std::move(token));
}

bool AddedTokens::find(std::string_view text, size_t from, Match& match) const {
  if (empty_) return false;
  for (size_t at = from; at < text.size(); ++at) {
    const auto first = static_cast<uint8_t>(text[at]);
    if (by_first_byte_[first].empty()) continue;
    if (at + 1 < text.size() && !two_bytes_[first * 256U + static_cast<uint8_t>(text[at + 1])]) continue;
    for (const AddedToken& token : by_first_byte_[first]) {
      if (text.compare(at, token.content.size(), token.content) != 0) continue;
      match = {at, at + token.content.size(), token.id};
      while (token.lstrip && match.begin > from) {
        const CodePoint c = decode_last_utf8(text.substr(0, match.begin));
        if (char_class(c.value) != CharClass::kSpace) break;
        match.begin -= static_cast<size_t>(c.size_bytes);
      }
      while (token.rstrip && match.end < text.size()) {
        const CodePoint c = decode_utf8(text.substr(match.end));
        if (char_class(c.value) != CharClass::kSpace) break;
        match.end += static_cast<size_t>(c.size_bytes);
      }
      return true;
    }
  }
  return false;
}

}  // namespace ms::train::detail
