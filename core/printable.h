// Words of messages: text of others as it stands in one line (what a file says, values of flags, names), and counts.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace ms::core {

// The text in double quotes: control characters as \xNN, truncated to 200 bytes.
std::string printable(std::string_view text);

// A value as its user has written it: bare if it is one word of at most 200 bytes, else as printable() has it. An empty
// one is seen as "".
std::string shown_value(std::string_view value);

// Throws kInvalidArgument unless value is one of values: "--softmax-type x: expected vanilla, off-by-one or learnable",
// and more. Empty values are accepted and not listed.
void require_one_of(std::string_view flag, std::string_view value, std::initializer_list<const char*> values,
                    std::string_view more = "");

// The text with words of more than 400 bytes cut in their middle. Names of files come into errors in all modules; a
// system takes up to 4096 bytes of one, and a command line more.
std::string without_long_words(std::string_view text);

// "1 row", "2 rows".
std::string counted(int64_t count, std::string_view noun);

}  // namespace ms::core
