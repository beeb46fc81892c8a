// Added tokens of a tokenizer.json: strings with ids of their own, which are found in the text before anything else.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ms::train::detail {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool lstrip = false;  // includes the white space before it
  bool rstrip = false;
};

// A set of added tokens, searched together: the leftmost match wins, and of those the longest.
class AddedTokens {
 public:
  void add(AddedToken token);

  struct Match {
    size_t begin, end;  // bytes, including the white space that belongs to it
    int32_t id;
  };
  // The first match at or after `from`; false if there is none. A match never includes white space before `from`.
  bool find(std::string_view text, size_t from, Match& match) const;

 private:
  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // longest first
  std::bitset<65536> two_bytes_;                            // the first two bytes of each token, as first << 8 | second
  bool empty_ = true;
};

}  // namespace ms::train::detail
