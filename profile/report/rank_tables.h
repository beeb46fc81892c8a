// Per-rank sections as tables over all ranks, for text, CSV and the HTML report.
#pragma once

#include "profile/analysis/results.h"
#include "profile/report/data_table.h"
#include "profile/store.h"

namespace ms::profile {

// Functions for Section::tables. top: rows per rank; 0: all.
DataTable facts_table(const Store& store, const Results& results, int64_t top);
DataTable breakdown_table(const Store& store, const Results& results, int64_t top);
DataTable per_step_table(const Store& store, const Results& results, int64_t top);
DataTable kernel_types_table(const Store& store, const Results& results, int64_t top);
DataTable kernels_table(const Store& store, const Results& results, int64_t top);
DataTable operators_table(const Store& store, const Results& results, int64_t top);
DataTable launch_table(const Store& store, const Results& results, int64_t top);
DataTable queue_table(const Store& store, const Results& results, int64_t top);
DataTable idle_table(const Store& store, const Results& results, int64_t top);
DataTable idle_causes_table(const Store& store, const Results& results, int64_t top);
DataTable copies_table(const Store& store, const Results& results, int64_t top);
DataTable allocator_table(const Store& store, const Results& results, int64_t top);
DataTable live_table(const Store& store, const Results& results, int64_t top);
DataTable ascend_table(const Store& store, const Results& results, int64_t top);
DataTable tensorboard_table(const Store& store, const Results& results, int64_t top);

}  // namespace ms::profile
