// Tables of results as HTML, with the cells that the command line prints.
#pragma once

#include <set>
#include <string>

#include "profile/report/data_table.h"

namespace ms::profile {

// A table, possibly cut to fit into the page.
struct HtmlTable {
  std::string html;
  size_t rows = 0, shown = 0;
};

// If the first column is "rank", keeps the rows of `ranks` only, each with its rank as data-rank. max_bytes: limit for
// the rows, shared equally by these ranks; the first rows are kept.
HtmlTable html_table(const DataTable& table, const std::set<int64_t>& ranks, size_t max_bytes);

}  // namespace ms::profile
