// Makes text from a foreign file safe to print in one line of an error message.
#pragma once

#include <string>
#include <string_view>

namespace ms::core {

// Returns the text in double quotes: control characters as \xNN, truncated to 200 bytes.
inline std::string printable(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text.substr(0, 200)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + (text.size() > 200 ? "...\"" : "\"");
}

}  // namespace ms::core
