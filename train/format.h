// Numbers as text: snprintf into a string, and bytes in MiB.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace ms::train {

template <class... Values>
std::string format(const char* how, Values... values) {
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, how, values...)), '\0');
  std::snprintf(text.data(), text.size() + 1, how, values...);
  return text;
}

inline double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace ms::train
