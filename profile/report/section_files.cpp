#include "profile/report/section_files.h"

#include "core/error.h"
#include "profile/analysis/steps.h"
#include "profile/report/csv_report.h"
#include "profile/report/json_writer.h"
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

}  // namespace

std::string steps_csv(const Results& results) {
  std::vector<std::string> header = {"Step", "Type", "Index"};
  for (const StepColumn& column : kStepColumns) header.emplace_back(column.vendor);
  header.insert(header.end(), {"DP Index", "PP Index", "TP Index"});
  Csv csv(header);
  for (const RankResults& rank : results.ranks) {
    const RankSteps& steps = rank.at<RankSteps>();
    for (const StepRow& step : steps.rows) {
      auto row = with_times({std::to_string(step.step), "rank", std::to_string(rank.rank)}, step.times);
      row.insert(row.end(),
                 {std::to_string(steps.layout.dp), std::to_string(steps.layout.pp), std::to_string(steps.layout.tp)});
      csv.row(row);
    }
  }
  for (const StageRow& stage : results.at<ClusterSteps>().stages) {
    std::string ranks = "(";  // the vendor's tool prints a Python tuple
    for (size_t i = 0; i < stage.ranks.size(); ++i) ranks += core::cat(i == 0 ? "" : ", ", stage.ranks[i]);
    ranks += stage.ranks.size() == 1 ? ",)" : ")";
    auto row = with_times({std::to_string(stage.step), "stage", ranks}, stage.times);
    row.insert(row.end(), {"", "", ""});
    csv.row(row);
  }
  return csv.text();
}

std::string findings_csv(const Results& results) {
  Csv csv({"worst_rank", "kind", "lost_us", "share_pct", "worst_us", "detail"});
  for (const Finding& finding : results.at<Findings>()) {
    csv.row({std::to_string(finding.worst_rank), std::string(finding_name(finding.kind)), microseconds(finding.lost_ns),
             fixed(100 * finding.share, 4), microseconds(finding.worst_ns), finding.detail});
  }
  return csv.text();
}

}  // namespace ms::profile
