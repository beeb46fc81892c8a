#include "profile/report/table.h"

#include <algorithm>
#include <cctype>
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

std::string readable_name(std::string_view name) {
  const bool cpp = name.find("::") != std::string_view::npos || name.find('(') != std::string_view::npos;
  if (!cpp || name.starts_with("aten::") || name.starts_with("autograd::") || name.starts_with("c10d::") ||
      name.find('<') == std::string_view::npos) {
    return std::string(name);
  }
  if (constexpr std::string_view kVoid = "void "; name.starts_with(kVoid)) name.remove_prefix(kVoid.size());
  // The parameter list is the last group of parentheses outside template arguments.
  int angle = 0, round = 0;
  size_t parameters = std::string_view::npos;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name.substr(i).starts_with("(anonymous namespace)")) {
      i += std::string_view("(anonymous namespace)").size() - 1;
      continue;
    }
    if (name[i] == '<') ++angle;
    if (name[i] == '>' && angle > 0 && (i == 0 || name[i - 1] != '-')) --angle;
    if (name[i] == '(' && angle == 0 && round == 0) parameters = i;
    if (name[i] == '(') ++round;
    if (name[i] == ')') --round;
  }
  if (parameters != std::string_view::npos && parameters > 0) name = name.substr(0, parameters);
  // Each qualifier before "::" goes: an identifier, or (anonymous namespace).
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != ':' || i + 1 >= name.size() || name[i + 1] != ':') {
      out += name[i];
      continue;
    }
    constexpr std::string_view kAnonymous = "(anonymous namespace)";
    if (out.ends_with(kAnonymous)) {
      out.resize(out.size() - kAnonymous.size());
    } else if (out.ends_with('>')) {  // of a class template: kernels differ in it
      out += "::";
    } else {
      while (!out.empty() && (std::isalnum(static_cast<unsigned char>(out.back())) != 0 || out.back() == '_')) {
        out.pop_back();
      }
    }
    ++i;
  }
  return out.empty() ? std::string(name) : out;
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
