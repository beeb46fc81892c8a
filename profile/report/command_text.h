// Command lines that the output of analyze and the report suggest, ready for a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ms::profile {

// "msprof VERB INPUT.." with inputs quoted for a POSIX shell; "..." replaces the inputs after the fourth. verb: a verb
// with its flags, not quoted.
std::string command_text(std::string_view verb, const std::vector<std::string>& inputs);

}  // namespace ms::profile
