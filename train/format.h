// snprintf into a string.
#pragma once

#include <cstdio>
#include <string>

namespace ms::train {

template <class... Values>
std::string format(const char* how, Values... values) {
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, how, values...)), '\0');
  std::snprintf(text.data(), text.size() + 1, how, values...);
  return text;
}

}  // namespace ms::train
