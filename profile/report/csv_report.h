// Results as CSV files (RFC 4180), one a section, rank first, units in the header.
#pragma once

#include <string>
#include <vector>

#include "profile/analysis/results.h"
#include "profile/report/data_table.h"
#include "profile/store.h"

namespace ms::profile {

// Writes the results' sections into `folder` (made if it is missing) and returns the paths. The step table is
// cluster_step_trace_time.csv in the columns of the Ascend cluster tool, a row for each rank and each stage of a step.
// Throws kIo.
std::vector<std::string> write_csv(const Store& store, const Results& results, const std::string& folder);

// The same for tables alone.
std::vector<std::string> write_csv(const std::vector<DataTable>& tables, const std::string& folder);

// One cell, quoted if it must be.
std::string csv_cell(const std::string& text);

}  // namespace ms::profile
