#include "profile/report/csv_report.h"

#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/io/file.h"
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

std::string optional_count(int64_t value) { return value < 0 ? "" : std::to_string(value); }

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

const std::vector<std::string> kBreakdownHeader = {
    "span_us",    "computing_us", "exposed_communication_us", "exposed_memory_us",
    "busy_us",    "idle_us",      "communication_us",         "memory_us",
    "overlap_us", "events"};

std::vector<std::string> breakdown_cells(std::vector<std::string> row, const Breakdown& b) {
  for (const int64_t ns : {b.span, b.computing, b.exposed_communication, b.exposed_memory, b.busy, b.idle,
                           b.communication, b.memory, b.overlap}) {
    row.push_back(microseconds(ns));
  }
  row.push_back(std::to_string(b.events));
  return row;
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
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
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw core::Error(core::ErrorCode::kIo, core::cat("create folder ", folder, ": ", error.message()));
  std::vector<std::string> paths;
  const auto write = [&](const char* name, const Csv& csv) {
    paths.push_back((std::filesystem::path(folder) / name).string());
    core::write_text_atomically(paths.back(), csv.text());
  };
  if (results.sections & kFacts) {
    Csv csv({"rank", "world_size", "events", "device_events", "device_events_with_launch", "steps", "first_ts_ns",
             "last_end_ns", "communicated_bytes", "clock_error_us"});
    for (size_t r = 0; r < results.ranks.size(); ++r) {
      const RankResults& rank = results.ranks[r];
      const Facts& f = rank.facts;
      csv.row({std::to_string(rank.rank), optional_count(store.ranks[r]->world_size), std::to_string(f.events),
               std::to_string(f.device_events), std::to_string(f.device_events_with_launch),
               std::to_string(f.steps.size()), std::to_string(f.first_ts), std::to_string(f.last_end),
               std::to_string(f.comm_bytes), rank.clock.error_ns() < 0 ? "" : microseconds(rank.clock.error_ns())});
    }
    write("facts.csv", csv);
  }
  if (results.sections & kBreakdown) {
    Csv csv(joined({"rank"}, kBreakdownHeader));
    for (const RankResults& rank : results.ranks) {
      if (rank.breakdown) csv.row(breakdown_cells({std::to_string(rank.rank)}, *rank.breakdown));
    }
    write("breakdown.csv", csv);
  }
  if (results.sections & kPerStep) {
    Csv csv(joined({"rank", "step", "host_us"}, kBreakdownHeader));
    for (const RankResults& rank : results.ranks) {
      for (const StepBreakdown& step : rank.per_step) {
        if (!step.devices) continue;
        csv.row(breakdown_cells({std::to_string(rank.rank), std::to_string(step.step.number),
                                 microseconds(step.step.end - step.step.start)},
                                *step.devices));
      }
    }
    write("per_step.csv", csv);
  }
  if (results.sections & kKernelTypes) {
    Csv csv({"rank", "classes", "us"});
    for (const RankResults& rank : results.ranks) {
      for (const KernelType& type : rank.kernel_types) {
        csv.row({std::to_string(rank.rank), type.classes, microseconds(type.ns)});
      }
    }
    write("kernel_types.csv", csv);
  }
  if (results.sections & kKernels) {
    Csv csv({"rank", "name", "class", "count", "sum_us", "mean_us", "min_us", "max_us", "std_us", "flops", "bytes"});
    for (const RankResults& rank : results.ranks) {
      for (const KernelRow& row : rank.kernels) {
        csv.row({std::to_string(rank.rank), row.name, std::string(device_class_name(row.device_class)),
                 std::to_string(row.count), microseconds(row.sum_ns), fixed(row.mean_ns * 1e-3, 6),
                 microseconds(row.min_ns), microseconds(row.max_ns), fixed(row.std_ns * 1e-3, 6),
                 optional_count(row.flops), optional_count(row.bytes)});
      }
    }
    write("kernels.csv", csv);
  }
  if (results.sections & kSteps) write("cluster_step_trace_time.csv", steps_csv(results));
  if (results.sections & kFindings) {
    Csv csv({"worst_rank", "kind", "lost_us", "share_pct", "worst_us", "detail"});
    for (const Finding& finding : results.findings) {
      csv.row({std::to_string(finding.worst_rank), std::string(finding_name(finding.kind)),
               microseconds(finding.lost_ns), fixed(100 * finding.share, 4), microseconds(finding.worst_ns),
               finding.detail});
    }
    write("findings.csv", csv);
  }
  return paths;
}

}  // namespace ms::profile
