// Results as CSV files (RFC 4180), one a section, rank first, units in the header.
#pragma once

#include <string>
#include <vector>

#include "profile/analysis/results.h"
#include "profile/report/data_table.h"
#include "profile/store.h"

namespace ms::profile {

// The tables of the sections that were asked for, without empty ones. top: rows of each long list; 0: all.
std::vector<DataTable> tables_of(const Store& store, const Results& results, int64_t top);

// Writes them and the files of sections that have their own (Section::csv) into `folder` (made if it is missing) and
// returns the paths. Throws kIo.
std::vector<std::string> write_csv(const Store& store, const Results& results, const std::string& folder);

// The same for tables alone.
std::vector<std::string> write_csv(const std::vector<DataTable>& tables, const std::string& folder);

// One cell, quoted if it must be.
std::string csv_cell(const std::string& text);

}  // namespace ms::profile
