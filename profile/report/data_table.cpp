#include "profile/report/data_table.h"

#include <algorithm>

#include "core/error.h"
#include "profile/report/csv_report.h"
#include "profile/report/json_writer.h"
#include "profile/report/short_names.h"
#include "profile/report/table.h"

namespace ms::profile {
namespace {

using Unit = DataTable::Unit;

constexpr size_t kNameWidth = 52, kFullWidth = 4096;

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

std::string csv_header(const DataTable::Column& column) {
  return column.unit == Unit::kTime    ? column.name + "_us"
         : column.unit == Unit::kShare ? column.name + "_pct"
                                       : column.name;
}

std::string ms3(int64_t ns) { return fixed(static_cast<double>(ns) * 1e-6, 3); }

std::string text_cell(const Cell& cell) {
  return std::visit(
      Overloaded{[](std::monostate) { return std::string("-"); }, [](const std::string& text) { return text; },
                 [](int64_t count) { return std::to_string(count); }, [](Ns time) { return ms3(time.ns); },
                 [](Share share) {
                   return share.whole == 0
                              ? std::string("-")
                              : fixed(100.0 * static_cast<double>(share.part) / static_cast<double>(share.whole), 2);
                 },
                 [](Real real) { return fixed(real.value, real.decimals); }},
      cell);
}

std::string exact_cell(const Cell& cell) {
  return std::visit(
      Overloaded{[](std::monostate) { return std::string(); }, [](const std::string& text) { return text; },
                 [](int64_t count) { return std::to_string(count); }, [](Ns time) { return microseconds(time.ns); },
                 [](Share share) {
                   return share.whole == 0
                              ? std::string()
                              : fixed(100.0 * static_cast<double>(share.part) / static_cast<double>(share.whole), 4);
                 },
                 [](Real real) { return fixed(real.value, std::max(real.decimals, 6)); }},
      cell);
}

using Rows = std::vector<std::vector<Cell>>;

// By column: shortened texts that stay distinct; empty for cells without text.
std::vector<std::vector<std::string>> short_texts(const Rows& rows, size_t columns) {
  std::vector<std::vector<std::string>> out;
  for (size_t c = 0; c < columns; ++c) {
    std::vector<std::string> texts;
    for (const std::vector<Cell>& row : rows) {
      const std::string* text = std::get_if<std::string>(&row[c]);
      texts.push_back(text == nullptr ? std::string() : *text);
    }
    out.push_back(distinct_short_names(texts, kNameWidth));
  }
  return out;
}

}  // namespace

std::string header_text(const DataTable::Column& column) {
  std::string out = column.name;
  std::replace(out.begin(), out.end(), '_', ' ');
  if (column.unit == Unit::kTime) out += " ms";
  if (column.unit == Unit::kShare) out += " %";
  return out;
}

std::string DataTable::text(bool full_names) const {
  std::vector<Table::Column> columns;
  for (const Column& column : columns_) {
    if (!column.detail) columns.push_back({header_text(column), column.unit == Unit::kText});
  }
  Table table(columns);
  const auto names = full_names ? std::vector<std::vector<std::string>>() : short_texts(rows_, columns_.size());
  for (size_t r = 0; r < rows_.size(); ++r) {
    const std::vector<Cell>& row = rows_[r];
    std::vector<std::string> cells;
    for (size_t c = 0; c < row.size(); ++c) {
      if (columns_[c].detail) continue;
      const std::string* text = std::get_if<std::string>(&row[c]);
      cells.push_back(text == nullptr ? text_cell(row[c]) : full_names ? shorten(*text, kFullWidth) : names[c][r]);
    }
    table.add(std::move(cells));
  }
  return table.text();
}

std::string DataTable::csv() const {
  std::string out;
  const auto line = [&](size_t columns, const auto& cell) {
    for (size_t c = 0; c < columns; ++c) {
      if (c > 0) out += ',';
      out += csv_cell(cell(c));
    }
    out += "\r\n";
  };
  line(columns_.size(), [&](size_t c) { return csv_header(columns_[c]); });
  for (const std::vector<Cell>& row : rows_) line(row.size(), [&](size_t c) { return exact_cell(row[c]); });
  return out;
}

std::vector<std::vector<std::string>> DataTable::shown_rows() const {
  const auto names = short_texts(rows_, columns_.size());
  std::vector<std::vector<std::string>> out;
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::vector<std::string>& cells = out.emplace_back();
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      cells.push_back(std::holds_alternative<std::string>(rows_[r][c]) ? names[c][r] : text_cell(rows_[r][c]));
    }
  }
  return out;
}

void DataTable::write_rows(JsonWriter& json) const {
  for (const std::vector<Cell>& row : rows_) {
    json.begin_object();
    for (size_t c = 0; c < row.size(); ++c) {
      json.key(csv_header(columns_[c]));
      std::visit(Overloaded{[&](std::monostate) { json.null(); }, [&](const std::string& text) { json.value(text); },
                            [&](int64_t count) { json.value(count); }, [&](Ns time) { json.us(time.ns); },
                            [&](Share share) { json.percent(share.part, share.whole); },
                            [&](Real real) { json.decimal(real.value, std::max(real.decimals, 6)); }},
                 row[c]);
    }
    json.end_object();
  }
}

}  // namespace ms::profile
