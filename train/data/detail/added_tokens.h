// Added tokens of a tokenizer.json: strings that are found in the text before anything else and have an id of their
// own.
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
  bool lstrip = false;  // takes the white space before it along
  bool rstrip = false;
};

// One set of them, searched together: the leftmost, and of those the longest, wins.
class AddedTokens {
 public:
  void add(AddedToken token);

  struct Match {
    size_t begin, end;  // bytes, with the white space that it takes along
    int32_t id;
  };
  // The first match at or after `from`; false if there is none. White space before `from` is never taken.
  bool find(std::string_view text, size_t from, Match& match) const;

 private:
  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // longest first
  std::bitset<65536> two_bytes_;                            // what a token may begin with, as first << 8 | second
  bool empty_ = true;
};

}  // namespace ms::train::detail
