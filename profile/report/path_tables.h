// Critical paths as tables, like job_tables.h.
#pragma once

#include <vector>

#include "profile/analysis/critical_path.h"
#include "profile/analysis/job_path.h"
#include "profile/report/data_table.h"

namespace ms::profile {

// Of one rank: what bounds the path, and its events by what they carry of it.
std::vector<DataTable> path_tables(const RankTrace& trace, const CriticalPath& path, int64_t top);

// Across ranks: what the path consists of, how long it stays on each rank, and what would make it shorter.
std::vector<DataTable> path_tables(const JobPath& path, int64_t top);

}  // namespace ms::profile
