// Sections whose CSV file is no table of ours: its columns are another tool's, or its rows are of no rank.
#pragma once

#include <string>

#include "profile/analysis/results.h"

namespace ms::profile {

// Functions for Section::csv.
// cluster_step_trace_time.csv in the columns of the Ascend cluster tool: a row for each rank and each stage of a step.
std::string steps_csv(const Results& results);
std::string findings_csv(const Results& results);

}  // namespace ms::profile
