// Results of --compat hta as tables, with the column names of Holistic Trace Analysis.
#pragma once

#include <vector>

#include "profile/analysis/hta_results.h"
#include "profile/report/data_table.h"

namespace ms::profile {

// Temporal breakdown and overlap.
std::vector<DataTable> hta_breakdown_tables(const HtaResults& results);

// These two, then steps, idle times, queue lengths, copy bandwidths and stragglers; without empty tables.
std::vector<DataTable> hta_tables(const HtaResults& results);

}  // namespace ms::profile
