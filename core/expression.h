// Regular expressions from users: command line options and rule files.
#pragma once

#include <regex>
#include <string>

#include "core/error.h"

namespace ms::core {

// ECMAScript syntax without back references, so that matching takes time linear in the text for any expression. Throws
// `code`, with `where` in front, for an invalid expression, or one longer than 1024 bytes (each parenthesis takes
// stack).
std::regex user_expression(const std::string& text, bool ignore_case, ErrorCode code, const std::string& where);

}  // namespace ms::core
