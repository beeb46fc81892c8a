// Regular expressions that users bring: on the command line, in a file of rules.
#pragma once

#include <regex>
#include <string>

#include "core/error.h"

namespace ms::profile {

// ECMAScript's, without references back to a group: so matching takes time by the length of the text, for any
// expression.
// Throws `code`, after `where`, for what is none, or longer than 1024 bytes: each parenthesis takes stack.
std::regex user_expression(const std::string& text, bool ignore_case, core::ErrorCode code, const std::string& where);

}  // namespace ms::profile
