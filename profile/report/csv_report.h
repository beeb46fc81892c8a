// Writes results as CSV files (RFC 4180): one file per table, the rank in the first column, units in the header.
#pragma once

#include <string>
#include <vector>

#include "profile/analysis/results.h"
#include "profile/report/data_table.h"
#include "profile/store.h"

namespace ms::profile {

// The non-empty tables of Results::sections. top: rows of each long list; 0: all.
std::vector<DataTable> tables_of(const Store& store, const Results& results, int64_t top);

// Writes these tables, and each Section::csv, into `folder`, which is created if missing. Returns the paths. Throws
// kIo.
std::vector<std::string> write_csv(const Store& store, const Results& results, const std::string& folder);

// Writes the given tables only.
std::vector<std::string> write_csv(const std::vector<DataTable>& tables, const std::string& folder);

// One cell, quoted if it contains a comma, a quote or a line break.
std::string csv_cell(const std::string& text);

}  // namespace ms::profile
