#include "core/expression.h"

namespace ms::core {

std::regex user_expression(const std::string& text, bool ignore_case, ErrorCode code, const std::string& where) {
  constexpr size_t kMaxBytes = 1024;
  if (text.size() > kMaxBytes) {
    throw Error(code, cat(where, ": an expression of ", text.size(), " bytes: at most ", kMaxBytes));
  }
  try {
    // libstdc++'s other matcher takes exponential time for some expressions.
    const auto syntax = std::regex::ECMAScript | std::regex_constants::__polynomial;
    return std::regex(text, ignore_case ? syntax | std::regex::icase : syntax);
  } catch (const std::regex_error& e) {
    throw Error(code, cat(where, ": \"", text, "\": ", e.what()));
  }
}

}  // namespace ms::core
