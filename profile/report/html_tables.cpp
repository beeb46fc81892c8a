#include "profile/report/html_tables.h"

#include <map>

#include "core/error.h"
#include "profile/report/html_text.h"

namespace ms::profile {
namespace {

using core::cat;
using Unit = DataTable::Unit;

constexpr size_t kMaxTitle = 400;

std::string row_html(const DataTable& table, const std::vector<Cell>& row, const std::vector<std::string>& cells,
                     bool by_rank) {
  std::string out = by_rank ? cat("<tr data-rank=\"", std::get<int64_t>(row[0]), "\">") : "<tr>";
  for (size_t c = 0; c < row.size(); ++c) {
    const std::string* text = std::get_if<std::string>(&row[c]);
    out += table.columns()[c].unit == Unit::kText ? "<td class=\"text\"" : "<td";
    if (text != nullptr && cells[c] != *text) out += cat(" title=\"", html_text(text->substr(0, kMaxTitle)), "\"");
    out += cat(">", html_text(cells[c]), "</td>");
  }
  return out + "</tr>\n";
}

}  // namespace

HtmlTable html_table(const DataTable& table, const std::set<int64_t>& ranks, size_t max_bytes) {
  const bool by_rank = table.columns()[0].name == "rank";
  HtmlTable out;
  out.html = "<table class=\"sortable\"><thead><tr>";
  for (const DataTable::Column& column : table.columns()) {
    out.html += cat("<th scope=\"col\"", column.unit == Unit::kText ? " class=\"text\">" : ">",
                    html_text(header_text(column)), "</th>");
  }
  out.html += "</tr></thead><tbody>\n";
  const size_t part = by_rank && !ranks.empty() ? max_bytes / ranks.size() : max_bytes;
  std::map<int64_t, size_t> used;
  const std::vector<std::vector<std::string>> cells = table.shown_rows();
  for (size_t r = 0; r < cells.size(); ++r) {
    const std::vector<Cell>& row = table.rows()[r];
    const int64_t rank = by_rank ? std::get<int64_t>(row[0]) : 0;
    if (by_rank && ranks.count(rank) == 0) continue;
    ++out.rows;
    size_t& bytes = used[rank];
    if (bytes >= part) continue;
    const std::string html = row_html(table, row, cells[r], by_rank);
    bytes += html.size();
    if (bytes > part) continue;
    out.html += html;
    ++out.shown;
  }
  out.html += "</tbody></table>\n";
  return out;
}

}  // namespace ms::profile
