// Critical paths as tables, for text, CSV, JSON and the HTML report.
#pragma once

#include <vector>

#include "profile/analysis/critical_path.h"
#include "profile/analysis/job_path.h"
#include "profile/report/data_table.h"

namespace ms::profile {

// One rank: what bounds the path, and its events by their time on it.
std::vector<DataTable> path_tables(const RankTrace& trace, const CriticalPath& path, int64_t top);

// Across ranks: the parts of the path, its time on each rank, and what-if answers.
std::vector<DataTable> path_tables(const JobPath& path, int64_t top);

}  // namespace ms::profile
