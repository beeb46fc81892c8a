// What --compat hta counts as tables under the words of Holistic Trace Analysis, like mfu_tables.h.
#pragma once

#include <vector>

#include "profile/analysis/hta_results.h"
#include "profile/report/data_table.h"

namespace ms::profile {

// Its temporal breakdown and overlap.
std::vector<DataTable> hta_breakdown_tables(const HtaResults& results);

// These, steps, idle times, queue lengths, copy bandwidths and stragglers; without those that have no rows.
std::vector<DataTable> hta_tables(const HtaResults& results);

}  // namespace ms::profile
