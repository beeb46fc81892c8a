// Results as JSON, schema msprof/1: {"schema", "command", "arguments", "import", "warnings", "result"}.
#pragma once

#include <string>
#include <vector>

#include "profile/analysis/check.h"
#include "profile/analysis/critical_path.h"
#include "profile/analysis/diff.h"
#include "profile/analysis/hta_results.h"
#include "profile/analysis/results.h"
#include "profile/report/data_table.h"
#include "profile/store.h"

namespace ms::profile {

struct ReportOptions {
  std::string command;                 // the verb
  std::vector<std::string> arguments;  // of the command line, as given
  int64_t top = 10;                    // rows of long lists; 0: all
  bool pretty = false;
};

std::string json_report(const Store& store, const Results& results, const ReportOptions& options);
// store: of the base run, whose import is reported.
std::string json_report(const Store& store, const Diff& diff, const ReportOptions& options);
// path: of the first rank of the store.
std::string json_report(const Store& store, const CriticalPath& path, const ReportOptions& options);
std::string json_report(const Store& store, const JobPath& path, const ReportOptions& options);
std::string json_report(const Store& store, const HtaResults& hta, const ReportOptions& options);

// Tables by their names, the rows of one table, and the thresholds of `check`.
std::string json_report(const Store& store, const std::vector<DataTable>& tables, const ReportOptions& options);
std::string json_report(const Store& store, const DataTable& table, const ReportOptions& options);
std::string json_report(const Store& store, const std::vector<Check>& checks, const ReportOptions& options);

}  // namespace ms::profile
