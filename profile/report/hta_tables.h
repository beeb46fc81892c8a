// Holistic Trace Analysis' breakdown as tables under its words, like mfu_tables.h.
#pragma once

#include <vector>

#include "profile/analysis/hta_breakdown.h"
#include "profile/report/data_table.h"

namespace ms::profile {

struct HtaRank {
  int rank = 0;
  HtaBreakdown breakdown;
};
std::vector<DataTable> hta_tables(const std::vector<HtaRank>& ranks);

}  // namespace ms::profile
