#include "profile/report/job_tables.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/error.h"
#include "profile/analysis/kernel_spread.h"
#include "profile/analysis/pipeline.h"
#include "profile/analysis/pipeline_actions.h"
#include "profile/analysis/pop.h"

namespace ms::profile {
namespace {

using core::cat;
using Unit = DataTable::Unit;

}  // namespace

DataTable kernel_spread_table(const Store&, const Results& results, int64_t top) {
  if (results.ranks.size() < 2) return {};
  DataTable table("kernel_spread", "Kernels across ranks",
                  {{"name", Unit::kText},
                   {"class", Unit::kText, true},
                   {"ranks"},
                   {"sum", Unit::kTime},
                   {"min", Unit::kTime},
                   {"p25", Unit::kTime, true},
                   {"median", Unit::kTime},
                   {"p75", Unit::kTime, true},
                   {"max", Unit::kTime},
                   {"max_rank"},
                   {"min_rank", Unit::kCount, true}});
  const auto& rows = results.at<KernelSpread>();
  for (size_t i = 0; i < rows.size() && (top == 0 || i < static_cast<size_t>(top)); ++i) {
    const KernelSpreadRow& row = rows[i];
    table.add({row.name, std::string(device_class_name(row.device_class)), row.ranks, Ns{row.sum_ns}, Ns{row.min_ns},
               Ns{row.p25_ns}, Ns{row.median_ns}, Ns{row.p75_ns}, Ns{row.max_ns}, int64_t{row.max_rank},
               int64_t{row.min_rank}});
  }
  return table;
}

DataTable ranks_table(const Store&, const Results& results, int64_t) {
  const CrossRank& cross = results.at<CrossRank>();
  DataTable table("ranks", "Waiting and blame",
                  {{"rank"},
                   {"instances"},
                   {"times_last"},
                   {"wait", Unit::kTime},
                   {"blame", Unit::kTime},
                   {"late_sender", Unit::kTime},
                   {"late_receiver", Unit::kTime},
                   {"clock_offset", Unit::kTime},
                   {"clock_residual", Unit::kTime, true},
                   {"drift_ppm", Unit::kReal, true}});
  if (cross.ranks.size() < 2) return table;
  for (size_t r = 0; r < cross.ranks.size(); ++r) {
    const RankClock& clock = cross.clocks.ranks[r];
    const auto found = cross.by_rank.find(cross.ranks[r]);
    if (found == cross.by_rank.end()) {
      table.add({int64_t{cross.ranks[r]},
                 {},
                 {},
                 {},
                 {},
                 {},
                 {},
                 Ns{clock.offset},
                 Ns{clock.residual},
                 Real{clock.drift_ppm, 3}});
      continue;
    }
    const RankWaits& w = found->second;
    table.add({int64_t{cross.ranks[r]}, w.instances, w.times_last, Ns{w.wait}, Ns{w.blame}, Ns{w.late_sender},
               Ns{w.late_receiver}, Ns{clock.offset}, Ns{clock.residual}, Real{clock.drift_ppm, 3}});
  }
  return table;
}

DataTable slow_table(const Store&, const Results& results, int64_t) {
  const CrossRank& cross = results.at<CrossRank>();
  DataTable table("slow_ranks", "Slow ranks",
                  {{"rank"},
                   {"times_last"},
                   {"of"},
                   {"p_value", Unit::kReal},
                   {"blame", Unit::kTime},
                   {"blame_share", Unit::kReal},
                   {"cause", Unit::kText},
                   {"more", Unit::kTime},
                   {"kernel", Unit::kText},
                   {"times_slower", Unit::kReal}});
  for (const SlowRank& slow : cross.slow_ranks) {
    table.add({int64_t{slow.rank}, slow.times_last, slow.instances, Real{slow.p_value, 6}, Ns{slow.blame},
               Real{slow.blame_share, 3}, std::string(slow_cause_name(slow.cause)), Ns{slow.more_ns}, slow.kernel,
               slow.kernel_ratio == 0 ? Cell() : Cell(Real{slow.kernel_ratio, 2})});
  }
  return table;
}

DataTable waits_table(const Store&, const Results& results, int64_t top) {
  const CrossRank& cross = results.at<CrossRank>();
  DataTable table("waits", "Collectives by what they cost in waiting",
                  {{"start_ns", Unit::kCount, true},
                   {"type", Unit::kText},
                   {"group", Unit::kText},
                   {"ranks"},
                   {"last_arriver"},
                   {"skew", Unit::kTime},
                   {"waited", Unit::kTime},
                   {"transfer", Unit::kTime},
                   {"end_spread", Unit::kTime},
                   {"key", Unit::kText, true}});
  struct Cost {
    const WaitRow* row;
    int64_t waited;
  };
  std::vector<Cost> costs;
  for (const WaitRow& row : cross.rows) {
    int64_t waited = 0;
    for (const WaitRow::Member& member : row.members) waited += member.wait;
    costs.push_back({&row, waited});
  }
  std::stable_sort(costs.begin(), costs.end(), [](const Cost& a, const Cost& b) { return a.waited > b.waited; });
  if (top > 0 && costs.size() > static_cast<size_t>(top)) costs.resize(static_cast<size_t>(top));
  for (const auto& [row, waited] : costs) {
    table.add({row->start, row->type, row->group, static_cast<int64_t>(row->members.size()), int64_t{row->last_arriver},
               Ns{row->skew}, Ns{waited}, Ns{row->transfer}, Ns{row->end_spread}, row->key});
  }
  return table;
}

DataTable links_table(const Store&, const Results& results, int64_t) {
  const CrossRank& cross = results.at<CrossRank>();
  DataTable table("links", "Links",
                  {{"source"},
                   {"destination"},
                   {"messages"},
                   {"bytes"},
                   {"transfer", Unit::kTime},
                   {"GB/s", Unit::kReal},
                   {"of_median", Unit::kReal}});
  for (const auto& [ends, link] : cross.links) {
    const auto slow = std::find_if(cross.slow_links.begin(), cross.slow_links.end(), [&ends = ends](const SlowLink& s) {
      return s.source == ends.first && s.destination == ends.second;
    });
    const bool known = link.transfer > 0 && link.bytes > 0;
    table.add({int64_t{ends.first}, int64_t{ends.second}, link.messages, link.bytes, Ns{link.transfer},
               known ? Cell(Real{static_cast<double>(link.bytes) / static_cast<double>(link.transfer), 3}) : Cell(),
               slow == cross.slow_links.end() ? Cell() : Cell(Real{slow->of_median, 2})});
  }
  return table;
}

DataTable rates_table(const Store&, const Results& results, int64_t) {
  const CrossRank& cross = results.at<CrossRank>();
  DataTable table("collective_rates", "Bandwidth of collectives",
                  {{"type", Unit::kText},
                   {"group", Unit::kText},
                   {"bytes_from"},
                   {"ranks"},
                   {"instances"},
                   {"algbw_GB/s", Unit::kReal},
                   {"best", Unit::kReal},
                   {"worst", Unit::kReal},
                   {"busbw_GB/s", Unit::kReal}});
  for (const CollectiveRate& rate : cross.rates) {
    table.add({rate.type, rate.group, rate.size_class, rate.ranks, rate.instances, Real{rate.mean_algbw, 3},
               Real{rate.best_algbw, 3}, Real{rate.worst_algbw, 3}, Real{rate.mean_busbw, 3}});
  }
  return table;
}

namespace {

std::string percent_of(double ratio) { return cat(static_cast<int64_t>(ratio * 10000 + 0.5) / 100.0, " %"); }

// "Pipeline: 4 stages, 8 micro-batches, 2 chunks a stage, bubble 12.5 % (ideal 10 %)", as far as it is known.
std::string pipeline_title(const Pipeline& pipeline, const PipelineActions* actions) {
  std::string text = cat("Pipeline: ", pipeline.stages, " stages");
  if (!pipeline.missing.empty()) {
    text += " with traces";
  } else if (pipeline.microbatches == 0 || pipeline.ideal_from == IdealFrom::kAssumed) {
    text += cat(", ", pipeline.messages, " messages a step");
  } else {
    text += cat(", ", pipeline.microbatches, " micro-batches");
  }
  if (pipeline.chunks > 1) text += cat(", ", pipeline.chunks, " chunks a stage");
  if (actions != nullptr && actions->flow && actions->flow->in_a_v) text += " in a V";
  text += cat(", bubble ", percent_of(pipeline.bubble_ratio));
  if (!pipeline.ideal_ratio) return text + " (ideal not known)";
  return cat(text, " (ideal ", percent_of(*pipeline.ideal_ratio),
             pipeline.ideal_from == IdealFrom::kAssumed ? ", if each message is a micro-batch of 1F1B)" : ")");
}

}  // namespace

DataTable pipeline_table(const Store&, const Results& results, int64_t) {
  const auto* found = results.get<Pipeline>();
  if (found == nullptr) return {};
  const Pipeline& pipeline = *found;
  DataTable table("pipeline", pipeline_title(pipeline, results.get<PipelineActions>()),
                  {{"rank"},
                   {"stage"},
                   {"computing", Unit::kTime},
                   {"receiving", Unit::kTime},
                   {"bubble", Unit::kTime},
                   {"bubble", Unit::kShare}});
  for (const auto& [rank, row] : pipeline.by_rank) {
    table.add({int64_t{rank}, row.stage, Ns{row.computing}, Ns{row.receive}, Ns{row.bubble},
               Share{row.bubble, pipeline.step_ns * pipeline.steps}});
  }
  return table;
}

DataTable stage_waits_table(const Store&, const Results& results, int64_t) {
  const auto* found = results.get<PipelineActions>();
  if (found == nullptr) return {};
  std::vector<DataTable::Column> columns = {{"rank"}, {"stage"}};
  for (int wait = 0; wait < kNumStageWaits; ++wait)
    columns.push_back({std::string(stage_wait_name(static_cast<StageWait>(wait))), Unit::kTime});
  DataTable table("stage_waits",
                  cat(found->step < 0 ? "Stages" : cat("Stages in step ", found->step),
                      ": idle time until the first action, for hidden states, for gradients, for other work, and after "
                      "the last action"),
                  std::move(columns));
  for (const StageActions& stage : found->stages) {
    std::vector<Cell> row = {int64_t{stage.rank}, stage.stage};
    for (const int64_t ns : stage.waits_ns) row.emplace_back(Ns{ns});
    table.add(std::move(row));
  }
  return table;
}

namespace {

// What a stage does at `width` times from start to end: the action that lasts longest in each, or '.'.
std::string timeline(const StageActions& stage, int64_t start, int64_t end, int64_t width) {
  std::string text(static_cast<size_t>(width), '.');
  size_t next = 0;
  for (int64_t cell = 0; cell < width; ++cell) {
    const int64_t from = start + (end - start) * cell / width, to = start + (end - start) * (cell + 1) / width;
    while (next < stage.actions.size() && stage.actions[next].end <= from) ++next;
    int64_t longest = (to - from) / 2;  // an action that takes less leaves the stage idle for most of the cell
    for (size_t i = next; i < stage.actions.size() && stage.actions[i].start < to; ++i) {
      const int64_t within = std::min(to, stage.actions[i].end) - std::max(from, stage.actions[i].start);
      if (within < longest) continue;
      longest = within;
      text[static_cast<size_t>(cell)] = stage.actions[i].letter;
    }
  }
  return text;
}

}  // namespace

DataTable stage_actions_table(const Store&, const Results& results, int64_t) {
  constexpr int64_t kCells = 52;  // the width of a name
  const auto* found = results.get<PipelineActions>();
  if (found == nullptr) return {};
  DataTable table("stage_actions",
                  "Actions of the stages: F forward, B backward, I and W its parts for input and weights, R "
                  "recomputation, . idle",
                  {{"rank"}, {"stage"}, {"actions", Unit::kText}});
  for (const StageActions& stage : found->stages)
    table.add({int64_t{stage.rank}, stage.stage, timeline(stage, found->start, found->end, kCells)});
  return table;
}

DataTable action_times_table(const Store&, const Results& results, int64_t) {
  const auto* found = results.get<PipelineActions>();
  if (found == nullptr) return {};
  std::vector<DataTable::Column> columns = {{"rank"}, {"stage"}};
  std::vector<size_t> shown;  // letters that occur
  for (size_t i = 0; i < kActionLetters.size(); ++i) {
    const auto has = [i](const StageActions& stage) { return stage.totals[i].count > 0; };
    if (std::ranges::none_of(found->stages, has)) continue;
    shown.push_back(i);
    const std::string letter(1, kActionLetters[i]);
    columns.push_back({letter});
    columns.push_back({letter, Unit::kTime});
  }
  DataTable table("action_times", "Actions of the stages: their number and time", std::move(columns));
  for (const StageActions& stage : found->stages) {
    std::vector<Cell> row = {int64_t{stage.rank}, stage.stage};
    for (const size_t i : shown) {
      row.emplace_back(stage.totals[i].count);
      row.emplace_back(Ns{stage.totals[i].ns});
    }
    table.add(std::move(row));
  }
  return table;
}

DataTable pop_table(const Store&, const Results& results, int64_t) {
  const auto* found = results.get<Pop>();
  if (found == nullptr) return {};
  const Pop& pop = *found;
  DataTable table("pop", "POP efficiencies (below 0.8 deserves attention)",
                  {{"efficiency", Unit::kText}, {"value", Unit::kReal}});
  table.add({std::string("parallel"), Real{pop.parallel_efficiency, 4}});
  table.add({std::string("  load balance"), Real{pop.load_balance, 4}});
  table.add({std::string("  communication"), Real{pop.communication_efficiency, 4}});
  const auto optional = [](const std::optional<double>& value) { return value ? Cell(Real{*value, 4}) : Cell(); };
  table.add({std::string("    serialization"), optional(pop.serialization_efficiency)});
  table.add({std::string("    transfer"), optional(pop.transfer_efficiency)});
  return table;
}

DataTable useful_table(const Store&, const Results& results, int64_t) {
  const auto* found = results.get<Pop>();
  if (found == nullptr) return {};
  const Pop& pop = *found;
  DataTable table("useful", "Useful computing", {{"rank"}, {"useful", Unit::kTime}, {"of_runtime", Unit::kShare}});
  for (const auto& [rank, ns] : pop.useful) table.add({int64_t{rank}, Ns{ns}, Share{ns, pop.runtime}});
  return table;
}

namespace {

const std::vector<DataTable::Column> kDiffColumns = {
    {"name", Unit::kText}, {"base_count"},         {"test_count"},           {"base", Unit::kTime},
    {"test", Unit::kTime}, {"delta", Unit::kTime}, {"of_base", Unit::kShare}};

std::vector<Cell> diff_cells(const DiffRow& row) {
  return {row.name,
          row.base_count,
          row.test_count,
          Ns{row.base_ns},
          Ns{row.test_ns},
          Ns{row.delta_ns()},
          Share{row.delta_ns(), row.base_ns}};
}

DataTable diff_table(const char* name, const std::string& title, const std::vector<DiffRow>& rows, int64_t top) {
  DataTable table(name, title, kDiffColumns);
  for (size_t i = 0; i < rows.size() && (top == 0 || i < static_cast<size_t>(top)); ++i) table.add(diff_cells(rows[i]));
  return table;
}

std::string side_title(const char* what, const DiffSide& side) {
  return cat(what, ": ", side.explaining, side.explaining == 1 ? " row explains" : " rows explain",
             " 80 % of the change; ", side.added, " added, ", side.deleted, " deleted, ", side.increased,
             " more often, ", side.decreased, " less often, ", side.unchanged, " as often");
}

}  // namespace

std::vector<DataTable> diff_tables(const Diff& diff, int64_t top) {
  std::vector<DataTable> out;
  // Show at least the rows that explain the difference, even if they are more than `top`.
  const auto shown = [&](const DiffSide& side) {
    return top == 0 ? 0 : std::max(top, static_cast<int64_t>(side.explaining));
  };
  out.push_back(diff_table("device", side_title("Device", diff.device), diff.device.rows, shown(diff.device)));
  out.push_back(diff_table("host_operators", side_title("Operators of the host", diff.host_operators),
                           diff.host_operators.rows, shown(diff.host_operators)));
  out.push_back(diff_table("communication", "Communication that one run does more often", diff.communication, 0));
  DataTable steps("steps", "Steps", {{"run", Unit::kText}, {"steps"}, {"mean_ms", Unit::kReal}});
  steps.add({std::string("base"), diff.steps.base_steps, Real{diff.steps.base_mean_ns * 1e-6, 3}});
  steps.add({std::string("test"), diff.steps.test_steps, Real{diff.steps.test_mean_ns * 1e-6, 3}});
  if (diff.steps.low_ns) {
    steps.add({std::string("difference, from"), {}, Real{*diff.steps.low_ns * 1e-6, 3}});
    steps.add({std::string("difference, to"), {}, Real{*diff.steps.high_ns * 1e-6, 3}});
  }
  out.push_back(std::move(steps));
  std::erase_if(out, [](const DataTable& table) { return table.empty(); });
  return out;
}

DataTable check_table(const std::vector<Check>& checks) {
  DataTable table("check", "Thresholds",
                  {{"threshold", Unit::kText},
                   {"seen", Unit::kReal},
                   {"limit", Unit::kReal},
                   {"holds", Unit::kText},
                   {"where", Unit::kText}});
  for (const Check& check : checks) {
    table.add(
        {check.what, Real{check.seen, 4}, Real{check.limit, 4}, std::string(check.holds ? "yes" : "NO"), check.where});
  }
  return table;
}

}  // namespace ms::profile
