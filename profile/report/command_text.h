// Commands to copy into a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ms::profile {

// "msprof VERB INPUT...", quoted for a POSIX shell; more than four inputs end in "...".
std::string command_text(std::string_view verb, const std::vector<std::string>& inputs);

}  // namespace ms::profile
