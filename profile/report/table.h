// Text tables: columns as wide as their content, numbers right, text left, units in the header.
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
  std::string text() const;  // header and rows, two blanks between columns

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string fixed(double number, int decimals);
std::string milliseconds(int64_t ns);              // two decimals
std::string percent(int64_t part, int64_t whole);  // "7.59 %", "-" when whole is 0
// A kernel's name for people: without return type, namespaces and parameter list; template arguments stay. Other texts
// stay as they are.
std::string readable_name(std::string_view name);
// Cuts the middle out of a long name: beginning and end tell kernels apart. width >= 8, in bytes.
std::string shorten(std::string_view name, size_t width);

}  // namespace ms::profile
