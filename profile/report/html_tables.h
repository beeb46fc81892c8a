// Tables of results as HTML: the cells are those that the command line prints.
#pragma once

#include <set>
#include <string>

#include "profile/report/data_table.h"

namespace ms::profile {

// The part of a table that fits into a page.
struct HtmlTable {
  std::string html;
  size_t rows = 0, shown = 0;
};

// ranks: of a table whose first column is "rank", only their rows; each carries its rank as data-rank. max_bytes: of
// the rows, the same share for each of these ranks; the first rows are kept.
HtmlTable html_table(const DataTable& table, const std::set<int64_t>& ranks, size_t max_bytes);

}  // namespace ms::profile
