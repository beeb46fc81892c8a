#include "profile/report/table.h"

#include <algorithm>
#include <cstdio>

namespace ms::profile {

std::string Table::text() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = columns_[c].header.size();
    for (const auto& row : rows_) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  std::string out;
  const auto add = [&](auto&& cell) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) line += "  ";
      const std::string& text = cell(c);
      const std::string pad(widths[c] - text.size(), ' ');
      line += columns_[c].text ? text + pad : pad + text;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  add([&](size_t c) -> const std::string& { return columns_[c].header; });
  for (const auto& row : rows_) add([&](size_t c) -> const std::string& { return row[c]; });
  return out;
}

std::string fixed(double number, int decimals) {
  char text[400];
  std::snprintf(text, sizeof(text), "%.*f", decimals, number);
  return text;
}

std::string milliseconds(int64_t ns) { return fixed(static_cast<double>(ns) * 1e-6, 2); }

std::string percent(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : fixed(100.0 * static_cast<double>(part) / static_cast<double>(whole), 2) + " %";
}

std::string shorten(std::string_view name, size_t width) {
  std::string clean;
  for (const char c : name)
    clean += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;  // no escape sequences
  if (clean.size() <= width) return clean;
  const size_t head = (width - 2) / 2;
  return clean.substr(0, head) + ".." + clean.substr(clean.size() - (width - 2 - head));
}

}  // namespace ms::profile
