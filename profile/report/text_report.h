// Results as text for people (traces.md 13.1): one function a verb, each returns what the tool prints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profile/analysis/results.h"
#include "profile/report/data_table.h"
#include "profile/store.h"

namespace ms::profile {

std::string info_text(const Store& store, const Results& results);
// The tables of the sections that were asked for (csv_report.h).
std::string tables_text(const Store& store, const Results& results, int64_t top,
                        bool full_names = false);  // top 0: all
std::string tables_text(const std::vector<DataTable>& tables, bool full_names = false);
std::string steps_text(const Store& store, const Results& results);
// The page of a busy person. inputs: as given, for the commands that show more.
std::string analyze_text(const Store& store, const Results& results, const std::vector<std::string>& inputs);

}  // namespace ms::profile
