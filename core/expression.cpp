#include "core/expression.h"

#include <cctype>
#include <string_view>

namespace ms::core {
namespace {

// What stands at the first '*', '+' or '?' that has nothing to repeat, as in a file name's pattern; '\0': nothing does.
char idle_repetition(const std::string& text) {
  bool is_start = true;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_start && (c == '*' || c == '+' || c == '?') && !(c == '?' && i > 0 && text[i - 1] == '(')) return c;
    is_start = c == '(' || c == '|';
    if (c == '\\') ++i;
  }
  return '\0';
}

std::string fault_of(const std::string& text, const std::regex_error& error) {
  if (const char c = idle_repetition(text); c != '\0')
    return cat("nothing stands before ", c, " that it could repeat; any text is .*");
  std::string what = error.what();
  constexpr std::string_view kEnd = " in regular expression";
  if (what.ends_with('.')) what.pop_back();
  if (what.ends_with(kEnd)) what.resize(what.size() - kEnd.size());
  if (!what.empty()) what.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(what.front())));
  return cat(what, "; a \\ in front takes a character as it is");
}

}  // namespace

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
    throw Error(code, cat(where, ": \"", text,
                          "\": not a regular expression (ECMAScript's, without back references): ", fault_of(text, e)));
  }
}

}  // namespace ms::core
