#include "profile/report/text_report.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "profile/analysis/facts.h"
#include "profile/analysis/kernels.h"
#include "profile/analysis/steps.h"
#include "profile/report/command_text.h"
#include "profile/report/csv_report.h"
#include "profile/report/finding_text.h"
#include "profile/report/headline.h"
#include "profile/report/short_names.h"
#include "profile/report/table.h"

namespace ms::profile {
namespace {

using core::cat;

// The kernels with most computing time over all ranks.
std::string where_computing_goes(const Results& results) {
  constexpr size_t kTop = 3;
  std::map<std::string_view, int64_t> by_name;
  int64_t all = 0;
  for (const RankResults& rank : results.ranks) {
    for (const KernelRow& row : rank.at<std::vector<KernelRow>>()) {
      if (row.device_class != DeviceClass::kComputation) continue;
      by_name[row.name] += row.sum_ns;
      all += row.sum_ns;
    }
  }
  std::vector<std::pair<int64_t, std::string_view>> rows;
  for (const auto& [name, sum] : by_name) rows.emplace_back(-sum, name);
  std::sort(rows.begin(), rows.end());
  rows.resize(std::min(kTop, rows.size()));
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.second);
  names = distinct_short_names(names, 80);
  std::string out;
  for (size_t i = 0; i < rows.size(); ++i) {
    out += cat("  ", milliseconds(-rows[i].first), " ms  ", percent(-rows[i].first, all), "  ", names[i], "\n");
  }
  return out;
}

}  // namespace

std::string info_text(const Store& store, const Results& results) {
  Table files({{"rank"}, {"format", true}, {"bytes"}, {"events"}, {"whole", true}, {"file", true}});
  for (const FileInfo& file : store.files) {
    files.add({std::to_string(file.rank), file.format, std::to_string(file.bytes), std::to_string(file.events),
               file.truncated ? "no" : "yes", shorten(file.path, 80)});
  }
  Table ranks({{"rank"},
               {"of"},
               {"level", true},
               {"time ms"},
               {"steps", true},
               {"slices"},
               {"device"},
               {"comm MB"},
               {"clock offset us"},
               {"error us"}});
  Table categories({{"rank"}, {"category", true}, {"events"}});
  for (size_t r = 0; r < results.ranks.size(); ++r) {
    const Facts& f = results.ranks[r].at<Facts>();
    const RankTrace& trace = *store.ranks[r];
    const ClockLine& clock = results.ranks[r].clock;
    const auto slices = f.by_phase.find('X');
    ranks.add({std::to_string(trace.rank), trace.world_size < 0 ? "?" : std::to_string(trace.world_size),
               trace.level.empty() ? "-" : trace.level, milliseconds(f.last_end - f.first_ts),
               f.steps.empty() ? "-" : cat(f.steps.size(), ": ", f.steps.front(), "..", f.steps.back()),
               std::to_string(slices == f.by_phase.end() ? 0 : slices->second), std::to_string(f.device_events),
               fixed(static_cast<double>(f.comm_bytes) * 1e-6, 2),
               clock.error_ns() < 0 ? "-" : fixed(static_cast<double>(clock.offset_at(f.first_ts)) * 1e-3, 3),
               clock.error_ns() < 0 ? "-" : fixed(static_cast<double>(clock.error_ns()) * 1e-3, 3)});
    for (const auto& [category, count] : f.by_category) {
      categories.add({std::to_string(trace.rank), category, std::to_string(count)});
    }
  }
  return cat(files.text(), "\n", ranks.text(), categories.empty() ? "" : "\n",
             categories.empty() ? "" : categories.text());
}

std::string tables_text(const Store& store, const Results& results, int64_t top, bool full_names) {
  return tables_text(tables_of(store, results, top), full_names);
}

std::string tables_text(const std::vector<DataTable>& tables, bool full_names) {
  std::string out;
  for (const DataTable& table : tables)
    out += cat(out.empty() ? "" : "\n", table.title(), "\n", table.text(full_names));
  return out.empty() ? "nothing of this kind in the traces\n" : out;
}

std::string steps_text(const Store& store, const Results& results) {
  const std::vector<DataTable> ascend = tables_of(store, results, 0);
  if (!ascend.empty()) return tables_text(ascend);
  Table table({{"step"},
               {"rank", true},
               {"step ms"},
               {"computing"},
               {"comm not ovl"},
               {"overlapped"},
               {"comm"},
               {"free"},
               {"stage"},
               {"bubble"},
               {"preparing"}});
  const auto cells = [](const StepTimes& t) {
    return std::vector<std::string>{milliseconds(t.computing),  milliseconds(t.communication_not_overlapped),
                                    milliseconds(t.overlapped), milliseconds(t.communication),
                                    milliseconds(t.free),       milliseconds(t.stage),
                                    milliseconds(t.bubble),     milliseconds(t.preparing)};
  };
  for (const RankResults& rank : results.ranks) {
    for (const StepRow& row : rank.at<RankSteps>().rows) {
      std::vector<std::string> line = cells(row.times);
      line.insert(line.begin(), {std::to_string(row.step), std::to_string(rank.rank), milliseconds(row.host_ns)});
      table.add(std::move(line));
    }
  }
  if (table.empty()) return "no steps: the traces hold no ProfilerStep annotation\n";
  for (const StageRow& stage : results.at<ClusterSteps>().stages) {
    if (stage.ranks.size() < 2) continue;
    std::vector<std::string> line = cells(stage.times);
    line.insert(line.begin(),
                {std::to_string(stage.step), cat("max of ", stage.ranks.size(), " from ", stage.ranks[0]), ""});
    table.add(std::move(line));
  }
  std::string out = table.text();
  constexpr double kSlowRank = 0.05;  // as Ascend's cluster tool: (max - min) / mean of a step
  for (const StepSpread& spread : results.at<ClusterSteps>().spread) {
    if (spread.computing <= kSlowRank) continue;
    out += cat("step ", spread.step, ": computing differs by ", fixed(100 * spread.computing, 1),
               " % between ranks: a slow rank\n");
  }
  return out;
}

std::string analyze_text(const Store& store, const Results& results, const std::vector<std::string>& inputs) {
  const Headline head = headline(store, results);
  std::string out =
      cat(head.ranks, head.ranks == 1 ? " rank, " : " ranks, ", head.files, head.files == 1 ? " file" : " files");
  if (head.mean_step_ns) {
    out += cat("; ", head.steps_of_first_rank, head.steps_of_first_rank == 1 ? " step, " : " steps, ",
               milliseconds(*head.mean_step_ns), " ms each on average");
  }
  if (head.time.wall_ns == 0)
    return cat(out, "\nno device events: nothing to analyse; ", command_text("info", inputs), " shows what is there\n");
  if (head.on_cpu) {
    out += "\nno device events: operators of the host count as computing, gloo and MPI calls as communication";
  }
  out += cat("\ncomputing ", percent(head.time.computing_ns, head.time.wall_ns), " of the time");
  if (head.ranks > 1) out += cat("; load balance ", fixed(head.load_balance, 3));
  out += "\n\n";
  if (results.at<Findings>().empty()) return out + "no time is lost\n";
  out += cat("Lost time, largest first (sum over ", results.ranks.size() == 1 ? "the rank" : "ranks", "):\n");
  for (const Finding& finding : results.at<Findings>()) {
    out += cat("  ", milliseconds(finding.lost_ns), " ms  ", fixed(100 * finding.share, 2), " %  ",
               sentence(finding, results), "\n      ", remedy(finding, results), "\n      ",
               command_text(verb_of(finding.kind), inputs), "\n");
  }
  out +=
      cat("\nWhere computing goes:\n", where_computing_goes(results), "      ", command_text("kernels", inputs), "\n");
  return out;
}

}  // namespace ms::profile
