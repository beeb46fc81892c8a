// Text tables with aligned columns: numbers right, text left, units in the header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ms::profile {

class Table {
 public:
  struct Column {
    std::string header;
    bool text = false;  // left-aligned
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  std::string text() const;  // header and rows, columns separated by two blanks

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string fixed(double number, int decimals);
std::string milliseconds(int64_t ns);              // two decimals
std::string percent(int64_t part, int64_t whole);  // "7.59 %", "-" when whole is 0
// A kernel's name without return type, namespaces and parameter list; template arguments are kept. Other texts are
// returned unchanged.
std::string readable_name(std::string_view name);
// Cuts the middle out of a long name, because kernels differ at the beginning and the end; replaces control characters.
// width >= 8, in bytes.
std::string shorten(std::string_view name, size_t width);

}  // namespace ms::profile
