// The sections of results as tables: what text, CSV and the HTML report print.
#pragma once

#include <vector>

#include "profile/analysis/results.h"
#include "profile/report/data_table.h"
#include "profile/store.h"

namespace ms::profile {

// The tables of the sections that results hold, of all ranks, without empty ones. top: rows of each rank in text; 0:
// all.
std::vector<DataTable> rank_tables(const Store& store, const Results& results, int64_t top);

}  // namespace ms::profile
