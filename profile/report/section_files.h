// CSV files that are not DataTables: the step table in another tool's columns, and the findings.
#pragma once

#include <string>

#include "profile/analysis/results.h"

namespace ms::profile {

// Functions for Section::csv.
// cluster_step_trace_time.csv with the columns of the Ascend cluster tool: a row per step for each rank and each stage.
std::string steps_csv(const Results& results);
std::string findings_csv(const Results& results);

}  // namespace ms::profile
