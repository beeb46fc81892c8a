#include "profile/report/json_job.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "profile/analysis/kernel_spread.h"
#include "profile/analysis/pipeline.h"
#include "profile/analysis/pipeline_actions.h"
#include "profile/analysis/pop.h"
#include "profile/analysis/steps.h"
#include "profile/report/finding_text.h"
#include "profile/report/json_sections.h"

namespace ms::profile {
namespace {

using core::cat;

template <class Value>
void by_rank(JsonWriter& json, const char* key, const CrossRank& cross, Value&& value) {
  json.key(key).begin_object();
  for (const auto& [rank, waits] : cross.by_rank) {
    json.key(std::to_string(rank));
    value(waits);
  }
  json.end_object();
}

void write_clocks(JsonWriter& json, const CrossRank& cross) {
  const ClockAlignment& clocks = cross.clocks;
  json.key("alignment").value(alignment_name(clocks.alignment));
  json.key("matching_reliable").value(clocks.reliable);
  json.key("why_not");
  clocks.reliable ? json.null() : json.value(clocks.why);
  const auto each = [&](const char* key, auto&& value) {
    json.key(key).begin_object();
    for (size_t r = 0; r < cross.ranks.size(); ++r) {
      json.key(std::to_string(cross.ranks[r]));
      value(clocks.ranks[r]);
    }
    json.end_object();
  };
  each("clock_offset_us", [&](const RankClock& clock) { json.us(clock.offset); });
  each("clock_samples", [&](const RankClock& clock) { json.value(clock.samples); });
  each("clock_residual_mad_us", [&](const RankClock& clock) { json.us(clock.residual); });
  each("clock_drift_ppm", [&](const RankClock& clock) { json.decimal(clock.drift_ppm, 4); });
}

void write_rows(JsonWriter& json, const CrossRank& cross) {
  json.key("rows").begin_array();
  for (const WaitRow& row : cross.rows) {
    json.begin_object();
    json.key("key").value(row.key);
    json.key("type").value(row.type);
    json.key("ranks").begin_array();
    for (const WaitRow::Member& member : row.members) json.value(member.rank);
    json.end_array();
    json.key("last_arriver").value(row.last_arriver);
    json.key("skew_us").us(row.skew);
    json.key("wait_us").begin_object();
    for (const WaitRow::Member& member : row.members) json.key(std::to_string(member.rank)).us(member.wait);
    json.end_object();
    json.key("duration_us").begin_object();
    for (const WaitRow::Member& member : row.members) json.key(std::to_string(member.rank)).us(member.duration);
    json.end_object();
    json.key("transfer_us").us(row.transfer);
    json.key("end_spread_us").us(row.end_spread);
    json.end_object();
  }
  json.end_array();
}

void write_slow_ranks(JsonWriter& json, const CrossRank& cross) {
  json.key("slow_ranks").begin_array();
  for (const SlowRank& slow : cross.slow_ranks) {
    json.begin_object();
    json.key("rank").value(slow.rank);
    json.key("times_last").value(slow.times_last);
    json.key("instances").value(slow.instances);
    json.key("p_value").decimal(slow.p_value, 9);
    json.key("blame_us").us(slow.blame);
    json.key("blame_share").decimal(slow.blame_share, 6);
    json.key("cause").value(slow_cause_name(slow.cause));
    json.key("more_us").us(slow.more_ns);
    json.key("kernel");
    slow.kernel.empty() ? json.null() : json.value(slow.kernel);
    json.key("kernel_ratio");
    slow.kernel.empty() ? json.null() : json.decimal(slow.kernel_ratio, 4);
    json.end_object();
  }
  json.end_array();
  json.key("dixon_votes").begin_object();
  for (const auto& [rank, votes] : cross.dixon_votes) json.key(std::to_string(rank)).value(votes);
  json.end_object();
}

void write_links(JsonWriter& json, const CrossRank& cross) {
  json.key("links").begin_object();
  for (const auto& [ends, link] : cross.links) {
    json.key(cat(ends.first, "-", ends.second)).begin_object();
    json.key("messages").value(link.messages);
    json.key("bytes").value(link.bytes);
    json.key("transfer_us").us(link.transfer);
    json.key("gb_per_s");
    link.transfer > 0 && link.bytes > 0
        ? json.decimal(static_cast<double>(link.bytes) / static_cast<double>(link.transfer), 4)
        : json.null();
    json.end_object();
  }
  json.end_object();
  json.key("slow_links").begin_array();
  for (const SlowLink& slow : cross.slow_links) {
    json.begin_object();
    json.key("link").value(cat(slow.source, "-", slow.destination));
    json.key("gb_per_s").decimal(slow.gb_per_s, 4);
    json.key("of_median").decimal(slow.of_median, 4);
    json.end_object();
  }
  json.end_array();
  json.key("collective_rates").begin_array();
  for (const CollectiveRate& rate : cross.rates) {
    json.begin_object();
    json.key("type").value(rate.type);
    json.key("group").value(rate.group);
    json.key("size_class_bytes").value(rate.size_class);
    json.key("ranks").value(rate.ranks);
    json.key("instances").value(rate.instances);
    json.key("mean_algbw_gb_per_s").decimal(rate.mean_algbw, 4);
    json.key("best_algbw_gb_per_s").decimal(rate.best_algbw, 4);
    json.key("worst_algbw_gb_per_s").decimal(rate.worst_algbw, 4);
    json.key("mean_busbw_gb_per_s").decimal(rate.mean_busbw, 4);
    json.end_object();
  }
  json.end_array();
}

void write_diff_row(JsonWriter& json, const DiffRow& row) {
  json.begin_object();
  json.key("name").value(row.name);
  json.key("base_count").value(row.base_count);
  json.key("test_count").value(row.test_count);
  json.key("delta_count").value(row.test_count - row.base_count);
  json.key("base_us").us(row.base_ns);
  json.key("test_us").us(row.test_ns);
  json.key("delta_us").us(row.delta_ns());
  json.end_object();
}

void write_diff_side(JsonWriter& json, const char* key, const DiffSide& side, int64_t top) {
  json.key(key).begin_object();
  json.key("names").value(static_cast<int64_t>(side.rows.size()));
  json.key("by_count_change").begin_object();
  json.key("added").value(side.added);
  json.key("deleted").value(side.deleted);
  json.key("increased").value(side.increased);
  json.key("decreased").value(side.decreased);
  json.key("unchanged").value(side.unchanged);
  json.end_object();
  json.key("total_us").begin_array();
  json.us(side.base_ns);
  json.us(side.test_ns);
  json.end_array();
  json.key("rows_that_explain_80_pct").value(static_cast<int64_t>(side.explaining));
  json.key("top_by_abs_delta_us").begin_array();
  const size_t shown = top == 0 ? side.rows.size() : std::max(static_cast<size_t>(top), side.explaining);
  for (size_t i = 0; i < std::min(shown, side.rows.size()); ++i) write_diff_row(json, side.rows[i]);
  json.end_array();
  json.end_object();
}

void write_spread(JsonWriter& json, std::string_view name, double share) {
  json.key(name);
  share < 0 ? json.null() : json.decimal(100 * share, 4);
}

}  // namespace

void write_cluster(JsonWriter& json, const Results& results) {
  const ClusterSteps& cluster = results.at<ClusterSteps>();
  json.key("steps").begin_object();
  json.key("stages").begin_array();
  for (const StageRow& stage : cluster.stages) {
    json.begin_object();
    json.key("step").value(stage.step);
    json.key("ranks").begin_array();
    for (const int rank : stage.ranks) json.value(rank);
    json.end_array();
    write_step_times(json, stage.times);
    json.end_object();
  }
  json.end_array();
  json.key("spread").begin_array();
  for (const StepSpread& spread : cluster.spread) {
    json.begin_object();
    json.key("step").value(spread.step);
    write_spread(json, "computing_pct", spread.computing);
    write_spread(json, "communication_not_overlapped_pct", spread.communication_not_overlapped);
    write_spread(json, "free_pct", spread.free);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void write_findings(JsonWriter& json, const Results& results) {
  json.key("findings").begin_array();
  for (const Finding& finding : results.at<Findings>()) {
    json.begin_object();
    json.key("kind").value(finding_name(finding.kind));
    json.key("lost_us").us(finding.lost_ns);
    json.key("share_pct").decimal(100 * finding.share, 4);
    json.key("worst_rank").value(finding.worst_rank);
    json.key("worst_us").us(finding.worst_ns);
    json.key("cause");
    finding.kind == FindingKind::kIdle ? json.value(idle_cause_name(finding.cause)) : json.null();
    json.key("remedy").value(remedy(finding, results));
    json.key("detail");
    finding.detail.empty() ? json.null() : json.value(finding.detail);
    json.key("where");
    finding.where.empty() ? json.null() : json.value(finding.where);
    json.key("text").value(sentence(finding, results));
    json.end_object();
  }
  json.end_array();
  const Imbalance& even = results.at<Imbalance>();
  json.key("imbalance").begin_object();
  json.key("load_balance").decimal(even.load_balance, 6);
  json.key("slowest_rank").value(even.slowest_rank);
  json.key("computing_us").begin_object();
  for (const auto& [rank, ns] : even.computing_ns) json.key(std::to_string(rank)).us(ns);
  json.end_object();
  json.end_object();
}

void write_kernel_spread(JsonWriter& json, const Results& results) {
  if (results.ranks.size() < 2) return;
  json.key("kernel_spread").begin_array();
  for (const KernelSpreadRow& row : results.at<KernelSpread>()) {
    json.begin_object();
    json.key("name").value(row.name);
    json.key("class").value(device_class_name(row.device_class));
    json.key("ranks").value(row.ranks);
    json.key("sum_us").us(row.sum_ns);
    json.key("min_us").us(row.min_ns);
    json.key("p25_us").us(row.p25_ns);
    json.key("median_us").us(row.median_ns);
    json.key("p75_us").us(row.p75_ns);
    json.key("max_us").us(row.max_ns);
    json.key("min_rank").value(row.min_rank);
    json.key("max_rank").value(row.max_rank);
    json.end_object();
  }
  json.end_array();
}

void write_cross_rank(JsonWriter& json, const Results& results) {
  if (results.ranks.size() < 2) return;
  const CrossRank& cross = results.at<CrossRank>();
  json.key("cross_rank").begin_object();
  json.key("instances").value(cross.instances);
  json.key("instances_in_all_ranks").value(cross.instances_in_all_ranks);
  json.key("messages").value(cross.messages);
  json.key("groups_incomplete").value(cross.groups_incomplete);
  write_clocks(json, cross);
  if (cross.clocks.reliable) {
    by_rank(json, "wait_us", cross, [&](const RankWaits& w) { json.us(w.wait); });
    by_rank(json, "blame_us", cross, [&](const RankWaits& w) { json.us(w.blame); });
    by_rank(json, "times_last", cross, [&](const RankWaits& w) { json.value(w.times_last); });
    json.key("point_to_point").begin_object();
    by_rank(json, "late_sender_wait_us_at_receiver", cross, [&](const RankWaits& w) { json.us(w.late_sender); });
    by_rank(json, "late_receiver_wait_us_at_sender", cross, [&](const RankWaits& w) { json.us(w.late_receiver); });
    json.end_object();
    write_slow_ranks(json, cross);
    write_links(json, cross);
    write_rows(json, cross);
  }
  json.end_object();
}

void write_pop(JsonWriter& json, const Results& results) {
  const auto* pop = results.get<Pop>();
  json.key("pop");
  if (pop == nullptr) return json.null();
  json.begin_object();
  json.key("runtime_us").us(pop->runtime);
  json.key("useful_us").begin_object();
  for (const auto& [rank, ns] : pop->useful) json.key(std::to_string(rank)).us(ns);
  json.end_object();
  json.key("load_balance").decimal(pop->load_balance, 6);
  json.key("communication_efficiency").decimal(pop->communication_efficiency, 6);
  json.key("parallel_efficiency").decimal(pop->parallel_efficiency, 6);
  json.key("serialization_efficiency");
  pop->serialization_efficiency ? json.decimal(*pop->serialization_efficiency, 6) : json.null();
  json.key("transfer_efficiency");
  pop->transfer_efficiency ? json.decimal(*pop->transfer_efficiency, 6) : json.null();
  json.key("offload_idle_us").us(pop->offload_idle);
  json.end_object();
}

namespace {

// Null for a value that stands for unknown.
void write_known(JsonWriter& json, int64_t value, int64_t unknown) {
  value == unknown ? json.null() : json.value(value);
}

void write_pipeline_actions(JsonWriter& json, const PipelineActions& actions) {
  json.key("actions").begin_object();
  json.key("step").value(actions.step);
  json.key("duration_us").us(actions.end - actions.start);
  json.key("in_a_v");
  actions.flow ? json.value(actions.flow->in_a_v) : json.null();
  json.key("per_rank").begin_object();
  for (const StageActions& stage : actions.stages) {
    json.key(std::to_string(stage.rank)).begin_object();
    json.key("stage").value(stage.stage);
    json.key("idle_us").begin_object();
    for (int wait = 0; wait < kNumStageWaits; ++wait)
      json.key(stage_wait_name(static_cast<StageWait>(wait))).us(stage.waits_ns[static_cast<size_t>(wait)]);
    json.end_object();
    json.key("totals").begin_object();
    for (size_t i = 0; i < kActionLetters.size(); ++i) {
      if (stage.totals[i].count == 0) continue;
      json.key(kActionLetters.substr(i, 1)).begin_object();
      json.key("count").value(stage.totals[i].count);
      json.key("us").us(stage.totals[i].ns);
      json.end_object();
    }
    json.end_object();
    json.key("list").begin_array();
    for (const PipelineAction& action : stage.actions) {
      json.begin_object();
      json.key("action").value(std::string_view(&action.letter, 1));
      write_known(json.key("microbatch"), action.microbatch, -1);
      write_known(json.key("chunk"), action.chunk, -1);
      json.key("start_us").us(action.start - actions.start);
      json.key("dur_us").us(action.end - action.start);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_object();
  json.end_object();
}

}  // namespace

void write_pipeline(JsonWriter& json, const Results& results) {
  const auto* pipeline = results.get<Pipeline>();
  json.key("pipeline");
  if (pipeline == nullptr) return json.null();
  json.begin_object();
  json.key("stages").value(pipeline->stages);
  json.key("messages").value(pipeline->messages);
  const bool counted = pipeline->ideal_from != IdealFrom::kAssumed;
  write_known(json.key("microbatches"), counted ? pipeline->microbatches : 0, 0);
  write_known(json.key("chunks"), counted ? pipeline->chunks : 0, 0);
  json.key("steps").value(pipeline->steps);
  json.key("step_us").us(pipeline->step_ns);
  json.key("bubble_ratio").decimal(pipeline->bubble_ratio, 6);
  const auto above_ideal = [&](const char* key, double ratio) {
    json.key(key);
    pipeline->ideal_ratio ? json.decimal(ratio, 6) : json.null();
  };
  above_ideal("ideal_ratio", pipeline->ideal_ratio.value_or(0));
  json.key("ideal_from").value(ideal_from_name(pipeline->ideal_from));
  above_ideal("imbalance", pipeline->imbalance);
  above_ideal("transfer_and_gaps", pipeline->transfer_and_gaps);
  json.key("missing_ranks").begin_array();
  for (const int rank : pipeline->missing) json.value(rank);
  json.end_array();
  json.key("per_rank").begin_object();
  for (const auto& [rank, row] : pipeline->by_rank) {
    json.key(std::to_string(rank)).begin_object();
    json.key("stage").value(row.stage);
    json.key("computing_us").us(row.computing);
    json.key("recv_us").us(row.receive);
    json.key("bubble_us").us(row.bubble);
    json.end_object();
  }
  json.end_object();
  if (const auto* actions = results.get<PipelineActions>()) write_pipeline_actions(json, *actions);
  json.end_object();
}

void write_diff(JsonWriter& json, const Diff& diff, int64_t top) {
  write_diff_side(json, "device", diff.device, top);
  write_diff_side(json, "host_operators", diff.host_operators, top);
  json.key("steps").begin_object();
  json.key("base_steps").value(diff.steps.base_steps);
  json.key("test_steps").value(diff.steps.test_steps);
  json.key("base_mean_us").decimal(diff.steps.base_mean_ns * 1e-3, 3);
  json.key("test_mean_us").decimal(diff.steps.test_mean_ns * 1e-3, 3);
  json.key("delta_low_us");
  diff.steps.low_ns ? json.decimal(*diff.steps.low_ns * 1e-3, 3) : json.null();
  json.key("delta_high_us");
  diff.steps.high_ns ? json.decimal(*diff.steps.high_ns * 1e-3, 3) : json.null();
  json.end_object();
  json.key("communication").begin_array();
  for (const DiffRow& row : diff.communication) write_diff_row(json, row);
  json.end_array();
}

void write_critical_path(JsonWriter& json, const RankTrace& trace, const CriticalPath& path) {
  json.key("success").value(path.success);
  json.key("problem");
  path.problem.empty() ? json.null() : json.value(path.problem);
  json.key("nodes").value(path.nodes);
  json.key("edges").value(path.edges);
  json.key("edges_by_type").begin_object();
  for (size_t t = 0; t < kNumPathEdges; ++t) {
    if (path.edges_by_type[t] > 0) json.key(path_edge_name(static_cast<PathEdge>(t))).value(path.edges_by_type[t]);
  }
  json.end_object();
  json.key("critical_nodes").value(path.path_nodes);
  json.key("critical_edges").value(path.path_edges);
  json.key("critical_events").value(path.path_events);
  json.key("critical_path_length_us").us(path.length);
  json.key("window_us").us(path.window_end - path.window_start);
  json.key("bound_by_us").begin_object();
  for (size_t b = 1; b < kNumPathBounds; ++b) {
    if (path.bound_ns[b] > 0) json.key(path_bound_name(static_cast<PathBound>(b))).us(path.bound_ns[b]);
  }
  json.end_object();
  json.key("events").begin_array();
  for (const PathEvent& event : path.events) {
    json.begin_object();
    json.key("name").value(trace.names[trace.events.name[event.event]]);
    json.key("cat").value(trace.names[trace.categories[trace.events.category[event.event]].name]);
    json.key("ts_us").us(trace.events.ts[event.event]);
    json.key("dur_us").us(trace.events.dur[event.event]);
    json.key("on_path_us").us(event.on_path);
    json.end_object();
  }
  json.end_array();
}

}  // namespace ms::profile
