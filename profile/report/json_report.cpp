#include "profile/report/json_report.h"

#include <algorithm>

#include "profile/report/json_writer.h"

namespace ms::profile {
namespace {

void write_breakdown_fields(JsonWriter& json, const Breakdown& b) {
  json.key("span_us").us(b.span);
  json.key("computing_us").us(b.computing);
  json.key("communication_us").us(b.communication);
  json.key("memory_us").us(b.memory);
  json.key("exposed_communication_us").us(b.exposed_communication);
  json.key("exposed_memory_us").us(b.exposed_memory);
  json.key("busy_us").us(b.busy);
  json.key("idle_us").us(b.idle);
  json.key("overlap_us").us(b.overlap);
  json.key("overlap_pct").percent(b.overlap, b.communication);
  json.key("events").value(b.events);
}

void write_facts(JsonWriter& json, const RankTrace& trace, const RankResults& rank) {
  const Facts& f = rank.facts;
  json.key("facts").begin_object();
  json.key("events").value(f.events);
  json.key("by_ph").begin_object();
  for (const auto& [phase, count] : f.by_phase) json.key(std::string(1, phase)).value(count);
  json.end_object();
  json.key("by_cat").begin_object();
  for (const auto& [category, count] : f.by_category) json.key(category).value(count);
  json.end_object();
  json.key("distinct_names_X").value(f.distinct_slice_names);
  json.key("device_events").value(f.device_events);
  json.key("device_events_by_class").begin_object();
  for (int c = 0; c < kNumDeviceClasses; ++c) {
    const int64_t count = f.device_events_by_class[static_cast<size_t>(c)];
    if (count > 0) json.key(device_class_name(static_cast<DeviceClass>(c))).value(count);
  }
  json.end_object();
  json.key("device_events_with_launch").value(f.device_events_with_launch);
  json.key("steps").begin_array();
  for (const int64_t step : f.steps) json.value(step);
  json.end_array();
  json.key("first_ts_ns").value(f.first_ts);
  json.key("last_end_ns").value(f.last_end);
  json.key("rank").value(trace.rank);
  json.key("world_size");
  trace.world_size < 0 ? json.null() : json.value(trace.world_size);
  json.key("baseTimeNanoseconds").value(trace.base_unix_ns);
  json.key("level");
  trace.level.empty() ? json.null() : json.value(trace.level);
  json.key("communicated_bytes").value(f.comm_bytes);
  json.key("clock_offset_us").us(rank.clock.offset_at(f.first_ts));
  json.key("clock_error_us");
  rank.clock.error_ns() < 0 ? json.null() : json.us(rank.clock.error_ns());
  json.key("clock_drift_ppm").decimal(rank.clock.drift_ppm(), 4);
  json.end_object();
}

void write_breakdown(JsonWriter& json, const RankResults& rank) {
  json.key("breakdown");
  if (!rank.breakdown) return json.null();
  json.begin_object();
  write_breakdown_fields(json, *rank.breakdown);
  json.end_object();
}

void write_per_step(JsonWriter& json, const RankResults& rank) {
  json.key("per_step").begin_object();
  for (const StepBreakdown& row : rank.per_step) {
    json.key(std::to_string(row.step.number)).begin_object();
    json.key("host_us").us(row.step.end - row.step.start);
    if (row.devices) write_breakdown_fields(json, *row.devices);
    json.end_object();
  }
  json.end_object();
  json.key("device_events_outside_steps").value(rank.devices_outside_steps);
}

void write_kernel_types(JsonWriter& json, const RankResults& rank) {
  int64_t busy = 0;
  for (const KernelType& type : rank.kernel_types) busy += type.ns;
  json.key("kernel_types").begin_object();
  for (const KernelType& type : rank.kernel_types) {
    json.key(type.classes).begin_object();
    json.key("us").us(type.ns);
    json.key("pct").percent(type.ns, busy);
    json.end_object();
  }
  json.end_object();
}

void write_kernels(JsonWriter& json, const RankResults& rank, int64_t top) {
  int64_t sum = 0;
  for (const KernelRow& row : rank.kernels) sum += row.sum_ns;
  json.key("kernels").begin_object();
  json.key("distinct").value(static_cast<int64_t>(rank.kernels.size()));
  json.key("sum_all_us").us(sum);
  json.key("top").begin_array();
  int64_t n = 0;
  for (const KernelRow& row : rank.kernels) {
    if (top > 0 && n++ == top) break;
    json.begin_object();
    json.key("name").value(row.name);
    json.key("class").value(device_class_name(row.device_class));
    json.key("count").value(row.count);
    json.key("sum_us").us(row.sum_ns);
    json.key("mean_us").decimal(row.mean_ns * 1e-3, 6);
    json.key("min_us").us(row.min_ns);
    json.key("max_us").us(row.max_ns);
    json.key("std_us").decimal(row.std_ns * 1e-3, 6);
    json.key("flops");
    row.flops < 0 ? json.null() : json.value(row.flops);
    json.key("bytes");
    row.bytes < 0 ? json.null() : json.value(row.bytes);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void write_step_times(JsonWriter& json, const StepTimes& times) {
  for (const StepColumn& column : kStepColumns) json.key(std::string(column.json) + "_us").us(times.*column.time);
}

void write_steps(JsonWriter& json, const RankResults& rank) {
  json.key("steps").begin_array();
  for (const StepRow& row : rank.steps.rows) {
    json.begin_object();
    json.key("step").value(row.step);
    json.key("host_us").us(row.host_ns);
    write_step_times(json, row.times);
    json.end_object();
  }
  json.end_array();
}

void write_spread(JsonWriter& json, std::string_view name, double share) {
  json.key(name);
  share < 0 ? json.null() : json.decimal(100 * share, 4);
}

void write_cluster(JsonWriter& json, const ClusterSteps& cluster) {
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
  for (const Finding& finding : results.findings) {
    json.begin_object();
    json.key("kind").value(finding_name(finding.kind));
    json.key("lost_us").us(finding.lost_ns);
    json.key("share_pct").decimal(100 * finding.share, 4);
    json.key("worst_rank").value(finding.worst_rank);
    json.key("worst_us").us(finding.worst_ns);
    json.key("detail");
    finding.detail.empty() ? json.null() : json.value(finding.detail);
    json.end_object();
  }
  json.end_array();
  json.key("imbalance").begin_object();
  json.key("load_balance").decimal(results.imbalance.load_balance, 6);
  json.key("slowest_rank").value(results.imbalance.slowest_rank);
  json.key("computing_us").begin_object();
  for (const auto& [rank, ns] : results.imbalance.computing_ns) json.key(std::to_string(rank)).us(ns);
  json.end_object();
  json.end_object();
}

void write_import(JsonWriter& json, const Store& store) {
  json.key("import").begin_object();
  json.key("files").begin_array();
  for (const FileInfo& file : store.files) {
    json.begin_object();
    json.key("path").value(file.path);
    json.key("format").value(file.format);
    json.key("rank").value(file.rank);
    json.key("bytes").value(file.bytes);
    json.key("events").value(file.events);
    json.key("truncated").value(file.truncated);
    json.end_object();
  }
  json.end_array();
  json.key("data_loss").value(store.stats.data_loss());
  json.key("counts").begin_object();
  for (const auto& [kind, issue] : store.stats.issues()) json.key(kind).value(issue.count);
  json.end_object();
  json.key("seconds").decimal(store.seconds, 6);
  json.end_object();
}

}  // namespace

std::string json_report(const Store& store, const Results& results, const ReportOptions& options) {
  JsonWriter json(options.pretty);
  json.begin_object();
  json.key("schema").value("msprof/1");
  json.key("command").value(options.command);
  json.key("arguments").begin_array();
  for (const std::string& argument : options.arguments) json.value(argument);
  json.end_array();
  write_import(json, store);
  json.key("warnings").begin_array();
  for (const std::string& line : store.stats.lines()) json.value(line);
  for (const std::string& line : results.warnings) json.value(line);
  json.end_array();
  json.key("result").begin_object();
  json.key("ranks").begin_array();
  for (size_t r = 0; r < results.ranks.size(); ++r) {
    const RankResults& rank = results.ranks[r];
    json.begin_object();
    json.key("rank").value(rank.rank);
    if (results.sections & kFacts) write_facts(json, *store.ranks[r], rank);
    if (results.sections & kBreakdown) write_breakdown(json, rank);
    if (results.sections & kPerStep) write_per_step(json, rank);
    if (results.sections & kKernelTypes) write_kernel_types(json, rank);
    if (results.sections & kKernels) write_kernels(json, rank, options.top);
    if (results.sections & kSteps) write_steps(json, rank);
    json.end_object();
  }
  json.end_array();
  if (results.sections & kSteps) write_cluster(json, results.cluster);
  if (results.sections & kFindings) write_findings(json, results);
  json.end_object();
  json.end_object();
  return json.take();
}

}  // namespace ms::profile
