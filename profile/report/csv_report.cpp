#include "profile/report/csv_report.h"

#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/io/file.h"
#include "profile/report/job_tables.h"
#include "profile/report/json_writer.h"
#include "profile/report/rank_tables.h"
#include "profile/report/table.h"

namespace ms::profile {
namespace {

class Csv {
 public:
  explicit Csv(const std::vector<std::string>& header) { row(header); }
  void row(const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) text_ += ',';
      text_ += csv_cell(cells[i]);
    }
    text_ += "\r\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::vector<std::string> with_times(std::vector<std::string> row, const StepTimes& times) {
  for (const StepColumn& column : kStepColumns) row.push_back(microseconds(times.*column.time));
  return row;
}

Csv steps_csv(const Results& results) {
  std::vector<std::string> header = {"Step", "Type", "Index"};
  for (const StepColumn& column : kStepColumns) header.emplace_back(column.vendor);
  header.insert(header.end(), {"DP Index", "PP Index", "TP Index"});
  Csv csv(header);
  for (const RankResults& rank : results.ranks) {
    for (const StepRow& step : rank.steps.rows) {
      auto row = with_times({std::to_string(step.step), "rank", std::to_string(rank.rank)}, step.times);
      row.insert(row.end(), {std::to_string(rank.steps.layout.dp), std::to_string(rank.steps.layout.pp),
                             std::to_string(rank.steps.layout.tp)});
      csv.row(row);
    }
  }
  for (const StageRow& stage : results.cluster.stages) {
    std::string ranks = "(";  // the vendor prints a Python tuple
    for (size_t i = 0; i < stage.ranks.size(); ++i) ranks += core::cat(i == 0 ? "" : ", ", stage.ranks[i]);
    ranks += stage.ranks.size() == 1 ? ",)" : ")";
    auto row = with_times({std::to_string(stage.step), "stage", ranks}, stage.times);
    row.insert(row.end(), {"", "", ""});
    csv.row(row);
  }
  return csv;
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw core::Error(core::ErrorCode::kIo, core::cat("create folder ", folder, ": ", error.message()));
}

}  // namespace

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += c;
    out += c;
  }
  return out + '"';
}

std::vector<std::string> write_csv(const Store& store, const Results& results, const std::string& folder) {
  make_folder(folder);
  std::vector<std::string> paths;
  const auto write = [&](const std::string& name, const std::string& text) {
    paths.push_back((std::filesystem::path(folder) / name).string());
    core::write_text_atomically(paths.back(), text);
  };
  for (const DataTable& table : rank_tables(store, results, 0)) write(table.name() + ".csv", table.csv());
  for (const DataTable& table : job_tables(results, 0)) write(table.name() + ".csv", table.csv());
  if (results.sections & kSteps) write("cluster_step_trace_time.csv", steps_csv(results).text());
  if (results.sections & kFindings) {
    Csv csv({"worst_rank", "kind", "lost_us", "share_pct", "worst_us", "detail"});
    for (const Finding& finding : results.findings) {
      csv.row({std::to_string(finding.worst_rank), std::string(finding_name(finding.kind)),
               microseconds(finding.lost_ns), fixed(100 * finding.share, 4), microseconds(finding.worst_ns),
               finding.detail});
    }
    write("findings.csv", csv.text());
  }
  return paths;
}

std::vector<std::string> write_csv(const std::vector<DataTable>& tables, const std::string& folder) {
  make_folder(folder);
  std::vector<std::string> paths;
  for (const DataTable& table : tables) {
    paths.push_back((std::filesystem::path(folder) / (table.name() + ".csv")).string());
    core::write_text_atomically(paths.back(), table.csv());
  }
  return paths;
}

}  // namespace ms::profile
