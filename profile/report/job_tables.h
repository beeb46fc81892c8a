// Job sections as tables: waits and blame, slow ranks, links, pipeline and its stages, POP; diff and check.
#pragma once

#include <vector>

#include "profile/analysis/check.h"
#include "profile/analysis/diff.h"
#include "profile/analysis/results.h"
#include "profile/report/data_table.h"

namespace ms::profile {

// Functions for Section::tables.
DataTable kernel_spread_table(const Store& store, const Results& results, int64_t top);
DataTable ranks_table(const Store& store, const Results& results, int64_t top);
DataTable slow_table(const Store& store, const Results& results, int64_t top);
DataTable waits_table(const Store& store, const Results& results, int64_t top);
DataTable links_table(const Store& store, const Results& results, int64_t top);
DataTable rates_table(const Store& store, const Results& results, int64_t top);
DataTable pipeline_table(const Store& store, const Results& results, int64_t top);
DataTable stage_waits_table(const Store& store, const Results& results, int64_t top);
DataTable stage_actions_table(const Store& store, const Results& results, int64_t top);
DataTable action_times_table(const Store& store, const Results& results, int64_t top);
DataTable pop_table(const Store& store, const Results& results, int64_t top);
DataTable useful_table(const Store& store, const Results& results, int64_t top);

std::vector<DataTable> diff_tables(const Diff& diff, int64_t top);
DataTable check_table(const std::vector<Check>& checks);

}  // namespace ms::profile
