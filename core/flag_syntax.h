// Splits a command line into flags and values as Python's argparse does, and suggests the flag that a user meant.
//
// CLI11 gives a flag that needs a value the next token, whatever it is: with an empty shell variable,
// `--save $DIR --bf16` would save into a folder named "--bf16". All four programs call check() before CLI11 parses, so
// that only these tokens are values: tokens that do not begin with '-', "-" itself, negative numbers, and text with a
// space that is not a known flag. `--save=--bf16` passes a value that looks like a flag.
// Source: argparse.ArgumentParser._parse_optional and _get_nargs_pattern.
#pragma once

#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ms::core {

class FlagSyntax {
 public:
  static constexpr int kNoLimit = std::numeric_limits<int>::max();

  // name: with its dashes, "--save" or "-o". The flag takes min_values to max_values values; 0 and 0 for a switch.
  void add(std::string name, int min_values, int max_values);

  // True if token is a flag that was added, alone or as "--name=value" or "-nvalue".
  bool knows(std::string_view token) const;

  // Checks args up to "--". Throws kInvalidArgument at the first flag with fewer values than it takes:
  // "--weight-decay: expected one argument, but the flag --clip-grad follows. Is a shell variable empty?"
  // At a switch with another value than true or false, too.
  // Ignores flags that were not added, and tokens that belong to no flag.
  void check(std::span<const std::string> args) const;

  // The added flag whose spelling is nearest to `flag` ("--name" or "--name=value"), or "" if none is close.
  std::string nearest(std::string_view flag) const;

 private:
  struct Values {
    int least, most;
  };
  const std::pair<const std::string, Values>* find(std::string_view token) const;
  bool is_value(std::string_view token) const;

  std::map<std::string, Values, std::less<>> flags_;
};

// The candidate whose spelling is nearest to `word`, with at most one edit per four letters (a letter changed,
// inserted, deleted, or swapped with its neighbour); otherwise the only one that begins with `word`. "" if none is
// close. Cost: O(sum of candidates' lengths x length of word); a word longer than 64 matches nothing.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace ms::core
