// Results as text: what the verbs print without --json or --csv.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profile/analysis/results.h"
#include "profile/report/data_table.h"
#include "profile/store.h"

namespace ms::profile {

std::string info_text(const Store& store, const Results& results);
// The tables of Results::sections (csv_report.h). top: rows of each long list; 0: all.
std::string tables_text(const Store& store, const Results& results, int64_t top, bool full_names = false);
std::string tables_text(const std::vector<DataTable>& tables, bool full_names = false);
std::string steps_text(const Store& store, const Results& results);
// The page of `analyze`: findings by lost time, each with a remedy and a command, then the kernels with most computing
// time. inputs: the arguments of the tool, repeated in the commands.
std::string analyze_text(const Store& store, const Results& results, const std::vector<std::string>& inputs);

}  // namespace ms::profile
