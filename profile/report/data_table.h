// A table of results that is filled once and printed as text (ms, shortened names), CSV (us, exact), JSON, or HTML
// (html_tables.h: the same cells as text).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "profile/report/json_writer.h"

namespace ms::profile {

struct Ns {
  int64_t ns = 0;
};
struct Share {
  int64_t part = 0, whole = 0;  // whole 0: "-"
};
struct Real {
  double value = 0;
  int decimals = 2;
};
// monostate prints as "-", in CSV as an empty cell.
using Cell = std::variant<std::monostate, std::string, int64_t, Ns, Share, Real>;

class DataTable {
 public:
  enum class Unit : uint8_t { kText, kCount, kTime, kShare, kReal };
  struct Column {
    std::string name;  // words joined by '_'; times get _us or ms, shares _pct or %
    Unit unit = Unit::kCount;
    bool detail = false;  // not in text, which has 120 columns of room
  };

  DataTable() = default;  // empty
  // name: of the CSV file and the JSON key. title: above the table.
  DataTable(std::string name, std::string title, std::vector<Column> columns)
      : name_(std::move(name)), title_(std::move(title)), columns_(std::move(columns)) {}

  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  const std::string& name() const { return name_; }
  const std::string& title() const { return title_; }
  bool empty() const { return rows_.empty(); }
  size_t size() const { return rows_.size(); }
  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<std::vector<Cell>>& rows() const { return rows_; }

  // full_names: kernel names with return type, namespaces and parameters; else shortened by short_names.h.
  std::string text(bool full_names = false) const;
  // The cells of text(), and of detail columns too.
  std::vector<std::vector<std::string>> shown_rows() const;
  std::string csv() const;
  // Writes the rows as objects into the open array, with the keys of CSV.
  void write_rows(JsonWriter& json) const;

 private:
  std::string name_, title_;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// The header of a column in DataTable::text().
std::string header_text(const DataTable::Column& column);

}  // namespace ms::profile
