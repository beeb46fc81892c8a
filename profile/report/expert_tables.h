// The load of experts, and what its unevenness costs, as tables and as JSON.
#pragma once

#include "profile/analysis/results.h"
#include "profile/report/data_table.h"

namespace ms::profile {

// Functions for Section::tables; empty without counters of experts. Of steps, text shows `top` that are evenly spaced.
DataTable expert_layers_table(const Store& store, const Results& results, int64_t top);
DataTable expert_ranks_table(const Store& store, const Results& results, int64_t top);
DataTable expert_waits_table(const Store& store, const Results& results, int64_t top);
DataTable expert_steps_table(const Store& store, const Results& results, int64_t top);
DataTable hot_experts_table(const Store& store, const Results& results, int64_t top);

// For Section::write_job: "experts"; nothing without counters of experts.
void write_experts(JsonWriter& json, const Results& results);

}  // namespace ms::profile
