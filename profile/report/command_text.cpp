#include "profile/report/command_text.h"

#include "core/error.h"

namespace ms::profile {
namespace {

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                          "_-./=:,@%+~") == std::string::npos;
  if (plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string command_text(std::string_view verb, const std::vector<std::string>& inputs) {
  constexpr size_t kMaxInputs = 4;
  std::string text = core::cat("msprof ", verb);
  for (size_t i = 0; i < inputs.size() && i < kMaxInputs; ++i) text += core::cat(" ", shell_word(inputs[i]));
  return inputs.size() > kMaxInputs ? text + " ..." : text;
}

}  // namespace ms::profile
