#include "profile/report/json_sections.h"

#include <algorithm>
#include <string>

#include "profile/analysis/ascend_steps.h"
#include "profile/analysis/breakdown.h"
#include "profile/analysis/facts.h"
#include "profile/analysis/kernels.h"
#include "profile/analysis/memory.h"
#include "profile/analysis/operators.h"
#include "profile/analysis/tensorboard_steps.h"

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

void write_ascend_steps(JsonWriter& json, const std::vector<AscendStep>& steps) {
  json.key("step_trace_time").begin_array();
  for (const AscendStep& step : steps) {
    json.begin_object();
    json.key("Step").value(step.step);
    json.key("Computing").us(step.computing);
    json.key("Communication(Not Overlapped)").us(step.communication_not_overlapped);
    json.key("Overlapped").us(step.overlapped);
    json.key("Communication").us(step.communication);
    json.key("Free").us(step.free);
    json.key("Stage").us(step.stage);
    json.key("Bubble").us(step.bubble);
    json.key("Communication(Not Overlapped and Exclude Receive)")
        .us(std::max<int64_t>(0, step.communication_not_overlapped - step.bubble));
    json.key("Preparing").us(step.preparing);
    json.end_object();
  }
  json.end_array();
}

void write_sums(JsonWriter& json, const char* key, const std::map<std::string, AscendSum>& sums) {
  json.key(key).begin_object();
  for (const auto& [name, sum] : sums) {
    json.key(name).begin_object();
    json.key("count").value(sum.count);
    json.key("sum_us").us(sum.ns);
    json.end_object();
  }
  json.end_object();
}

void write_megabytes(JsonWriter& json, const char* key, const std::optional<double>& mb) {
  json.key(key);
  mb ? json.decimal(*mb, 6) : json.null();
}

void write_ascend(JsonWriter& json, const RankTrace& trace, const std::vector<AscendStep>& steps, int64_t top) {
  const AscendTables& tables = *trace.ascend;
  write_ascend_steps(json, steps);
  json.key("trace_view").begin_object();
  int64_t events = 0;
  for (const int64_t count : trace.by_phase) events += count;
  json.key("events").value(events);
  json.key("by_ph").begin_object();
  for (size_t phase = 0; phase < trace.by_phase.size(); ++phase) {
    if (trace.by_phase[phase] > 0) json.key(std::string(1, static_cast<char>(phase))).value(trace.by_phase[phase]);
  }
  json.end_object();
  json.key("flows_complete_by_cat").begin_object();
  for (const Category& category : trace.categories) {
    if (category.complete_flows > 0) json.key(trace.names[category.name]).value(category.complete_flows);
  }
  json.end_object();
  json.key("hardware_task_types").begin_object();
  for (const auto& [type, count] : tables.task_types) json.key(type).value(count);
  json.end_object();
  json.end_object();
  if (tables.kernels) {
    const AscendKernels& k = *tables.kernels;
    json.key("kernel_details").begin_object();
    json.key("rows").value(k.rows);
    json.key("columns").value(k.columns);
    write_sums(json, "by_core", k.by_core);
    json.key("wait_time_sum_us").us(k.wait_ns);
    json.key("union_without_hccl_us").us(k.union_without_hccl_ns);
    std::vector<std::pair<std::string, AscendSum>> types(k.by_type.begin(), k.by_type.end());
    std::stable_sort(types.begin(), types.end(),
                     [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
    json.key("top_types").begin_array();
    for (size_t i = 0; i < types.size() && (top == 0 || i < static_cast<size_t>(top)); ++i) {
      json.begin_object();
      json.key("type").value(types[i].first);
      json.key("count").value(types[i].second.count);
      json.key("sum_us").us(types[i].second.ns);
      json.end_object();
    }
    json.end_array();
    json.key("distinct_types").value(static_cast<int64_t>(k.by_type.size()));
    json.end_object();
  }
  json.key("memory_record").begin_object();
  for (const auto& [component, peaks] : tables.memory) {
    json.key(component).begin_object();
    json.key("rows").value(peaks.rows);
    write_megabytes(json, "peak_allocated_mb", peaks.allocated_mb);
    write_megabytes(json, "peak_reserved_mb", peaks.reserved_mb);
    write_megabytes(json, "peak_active_mb", peaks.active_mb);
    json.end_object();
  }
  json.end_object();
  if (tables.operator_memory) {
    const AscendOperatorMemory& m = *tables.operator_memory;
    json.key("operator_memory").begin_object();
    json.key("rows").value(m.rows);
    json.key("size_sum_kb").decimal(m.size_sum_kb, 3);
    json.key("largest_kb").decimal(m.largest_kb, 3);
    json.key("largest_name").value(m.largest_name);
    json.key("never_released").value(m.never_released);
    write_megabytes(json, "peak_allocated_mb", m.peak_allocated_mb);
    json.end_object();
  }
  json.key("links").begin_array();
  for (const AscendLink& link : tables.links) {
    json.begin_object();
    json.key("link").value(link.source_destination);
    json.key("transport").value(link.transport);
    json.key("mb").decimal(link.size_mb, 6);
    json.key("ms").decimal(link.time_ms, 6);
    json.key("gb_per_s");
    link.time_ms > 0 ? json.decimal(link.size_mb / link.time_ms, 4) : json.null();
    json.end_object();
  }
  json.end_array();
}

}  // namespace

void write_step_times(JsonWriter& json, const StepTimes& times) {
  for (const StepColumn& column : kStepColumns) json.key(std::string(column.json) + "_us").us(times.*column.time);
}

void write_facts(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t) {
  const Facts& f = rank.at<Facts>();
  json.key("facts").begin_object();
  json.key("json_bytes");
  trace.json_bytes < 0 ? json.null() : json.value(trace.json_bytes);
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
  json.key("negative_dur").value(trace.negative_dur);
  json.key("rank");  // as in the file
  trace.file_rank < 0 ? json.null() : json.value(trace.file_rank);
  json.key("world_size");
  trace.world_size < 0 ? json.null() : json.value(trace.world_size);
  json.key("backend");
  trace.backend.empty() ? json.null() : json.value(trace.backend);
  json.key("baseTimeNanoseconds");
  trace.has_base ? json.value(trace.base_unix_ns) : json.null();
  json.key("displayTimeUnit");
  trace.display_time_unit.empty() ? json.null() : json.value(trace.display_time_unit);
  json.key("schemaVersion");
  trace.schema_version < 0 ? json.null() : json.value(trace.schema_version);
  json.key("flow_ids").value(trace.flow_ids);
  json.key("flow_pairs_complete").value(trace.flow_pairs_complete);
  json.key("level");
  trace.level.empty() ? json.null() : json.value(trace.level);
  json.key("communicated_bytes").value(f.comm_bytes);
  json.key("clock_offset_us").us(rank.clock.offset_at(f.first_ts));
  json.key("clock_error_us");
  rank.clock.error_ns() < 0 ? json.null() : json.us(rank.clock.error_ns());
  json.key("clock_drift_ppm").decimal(rank.clock.drift_ppm(), 4);
  json.end_object();
}

void write_breakdown(JsonWriter& json, const RankTrace&, const RankResults& rank, int64_t) {
  json.key("breakdown");
  const auto* times = rank.get<Breakdown>();
  if (times == nullptr) return json.null();
  json.begin_object();
  write_breakdown_fields(json, *times);
  json.end_object();
}

void write_per_step(JsonWriter& json, const RankTrace&, const RankResults& rank, int64_t) {
  json.key("per_step").begin_object();
  for (const StepBreakdown& row : rank.at<PerStep>().rows) {
    json.key(std::to_string(row.step.number)).begin_object();
    json.key("host_us").us(row.step.end - row.step.start);
    if (row.devices) {
      write_breakdown_fields(json, *row.devices);
    } else {
      json.key("events").value(0);
    }
    json.end_object();
  }
  json.end_object();
  json.key("device_events_outside_steps").value(rank.at<PerStep>().devices_outside_steps);
}

void write_kernel_types(JsonWriter& json, const RankTrace&, const RankResults& rank, int64_t) {
  int64_t busy = 0;
  for (const KernelType& type : rank.at<std::vector<KernelType>>()) busy += type.ns;
  json.key("kernel_types").begin_object();
  for (const KernelType& type : rank.at<std::vector<KernelType>>()) {
    json.key(type.classes).begin_object();
    json.key("us").us(type.ns);
    json.key("pct").percent(type.ns, busy);
    json.end_object();
  }
  json.end_object();
}

void write_kernels(JsonWriter& json, const RankTrace&, const RankResults& rank, int64_t top) {
  const auto& kernels = rank.at<std::vector<KernelRow>>();
  int64_t sum = 0;
  for (const KernelRow& row : kernels) sum += row.sum_ns;
  json.key("kernels").begin_object();
  json.key("distinct").value(static_cast<int64_t>(kernels.size()));
  json.key("sum_all_us").us(sum);
  json.key("top").begin_array();
  int64_t n = 0;
  for (const KernelRow& row : kernels) {
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

void write_steps(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top) {
  json.key("steps").begin_array();
  for (const StepRow& row : rank.at<RankSteps>().rows) {
    json.begin_object();
    json.key("step").value(row.step);
    json.key("host_us").us(row.host_ns);
    write_step_times(json, row.times);
    json.end_object();
  }
  json.end_array();
  if (trace.ascend != nullptr) write_ascend(json, trace, rank.at<std::vector<AscendStep>>(), top);
}

void write_launch_stats(JsonWriter& json, const RankTrace&, const RankResults& rank, int64_t) {
  json.key("launch_stats");
  const auto* stats = rank.get<LaunchStats>();
  if (stats == nullptr) return json.null();
  const LaunchStats& l = *stats;
  json.begin_object();
  json.key("pairs").value(l.pairs);
  json.key("launch_delay_sum_us").us(l.delay_sum);
  json.key("launch_delay_max_us").us(l.delay_max);
  json.key("launch_delay_median_us").us(l.delay_median);
  json.key("cpu_duration_sum_us").us(l.host_sum);
  json.key("gpu_duration_sum_us").us(l.device_sum);
  json.key("short_kernels_gpu_lt_cpu").value(l.short_kernels);
  json.key("runtime_over_50us").value(l.launches_over_50us);
  json.key("launch_delay_over_100us").value(l.delays_over_100us);
  json.end_object();
}

void write_queue_length(JsonWriter& json, const RankTrace&, const RankResults& rank, int64_t) {
  json.key("queue_length").begin_array();
  for (const QueueLength& q : rank.at<std::vector<QueueLength>>()) {
    json.begin_object();
    json.key("device").value(std::to_string(q.device));
    json.key("stream").value(q.stream);
    json.key("points").value(q.points);
    json.key("mean").decimal(q.mean, 6);
    json.key("max").value(q.max);
    json.key("min").value(q.min);
    json.key("p25").decimal(q.p25, 6);
    json.key("p50").decimal(q.p50, 6);
    json.key("p75").decimal(q.p75, 6);
    json.key("time_weighted_mean");
    q.time_weighted_mean ? json.decimal(*q.time_weighted_mean, 6) : json.null();
    json.key("final").value(q.final);
    json.key("at_limit_us").us(q.ns_at_limit);
    json.end_object();
  }
  json.end_array();
}

void write_idle(JsonWriter& json, const RankTrace&, const RankResults& rank, int64_t) {
  constexpr const char* kKinds[] = {"host_wait", "kernel_wait", "other"};
  json.key("idle").begin_array();
  for (const StreamIdle& idle : rank.at<std::vector<StreamIdle>>()) {
    json.begin_object();
    json.key("device").value(std::to_string(idle.device));
    json.key("stream").value(idle.stream);
    json.key("events").value(idle.events);
    json.key("idle_us").us(idle.idle);
    for (size_t k = 0; k < kNumIdleKinds; ++k) json.key(std::string(kKinds[k]) + "_us").us(idle.ns[k]);
    for (size_t k = 0; k < kNumIdleKinds; ++k) json.key(std::string(kKinds[k]) + "_gaps").value(idle.gaps[k]);
    for (size_t k = 0; k < kNumIdleKinds; ++k) json.key(std::string(kKinds[k]) + "_pct").percent(idle.ns[k], idle.idle);
    json.end_object();
  }
  json.end_array();
}

void write_idle_causes(JsonWriter& json, const RankTrace&, const RankResults& rank, int64_t top) {
  const IdleReasons& idle = rank.at<IdleReasons>();
  json.key("idle_causes").begin_object();
  json.key("idle_us").us(idle.idle_ns);
  json.key("by_cause_us").begin_object();
  for (size_t cause = 0; cause < kNumIdleCauses; ++cause) {
    int64_t ns = 0;
    for (const IdleReason& reason : idle.reasons) {
      if (static_cast<size_t>(reason.cause) == cause) ns += reason.ns;
    }
    if (ns > 0) json.key(idle_cause_name(static_cast<IdleCause>(cause))).us(ns);
  }
  json.end_object();
  json.key("top").begin_array();
  int64_t n = 0;
  for (const IdleReason& reason : idle.reasons) {
    if (top > 0 && n++ == top) break;
    json.begin_object();
    json.key("cause").value(idle_cause_name(reason.cause));
    json.key("name");
    reason.name.empty() ? json.null() : json.value(reason.name);
    json.key("where");
    reason.where.empty() ? json.null() : json.value(reason.where);
    json.key("idle_us").us(reason.ns);
    json.key("gaps").value(reason.gaps);
    json.end_object();
  }
  json.end_array();
  json.key("top_places").begin_array();
  n = 0;
  for (const IdleReason& place : idle.places) {
    if (top > 0 && n++ == top) break;
    json.begin_object();
    json.key("cause").value(idle_cause_name(place.cause));
    json.key("where").value(place.where);
    json.key("idle_us").us(place.ns);
    json.key("gaps").value(place.gaps);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void write_memory(JsonWriter& json, const RankTrace&, const RankResults& rank, int64_t) {
  json.key("memory_ops").begin_object();
  for (const auto& [kind, operation] : rank.at<MemoryUse>().operations) {
    json.key(kind).begin_object();
    json.key("count").value(operation.count);
    json.key("dur_us").us(operation.ns);
    json.key("bytes");
    operation.bytes < 0 ? json.null() : json.value(operation.bytes);
    json.key("gb_per_s");
    operation.bytes < 0 || operation.ns == 0
        ? json.null()
        : json.decimal(static_cast<double>(operation.bytes) / static_cast<double>(operation.ns), 4);
    json.end_object();
  }
  json.end_object();
  json.key("memory_timeline").begin_object();
  for (const auto& [device, t] : rank.at<MemoryUse>().timelines) {
    json.key(std::to_string(device.first) + ":" + std::to_string(device.second)).begin_object();
    json.key("events").value(t.events);
    json.key("peak_allocated").value(t.peak_allocated);
    json.key("peak_reserved").value(t.peak_reserved);
    json.key("sum_bytes").value(t.sum_bytes);
    json.key("peak_running").value(t.peak_running);
    json.key("peak_at_us").us(t.peak_at);
    json.key("frees_without_allocation").value(t.frees_without_allocation);
    json.key("live_blocks_at_end").value(t.live_blocks);
    json.key("live_bytes_at_end").value(t.live_bytes);
    json.key("at_peak").begin_array();
    constexpr size_t kMaxOwners = 20;
    for (size_t i = 0; i < std::min(kMaxOwners, t.at_peak.size()); ++i) {
      json.begin_object();
      json.key("owner").value(t.at_peak[i].owner);
      json.key("bytes").value(t.at_peak[i].bytes);
      json.key("blocks").value(t.at_peak[i].blocks);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_object();
}

void write_operators(JsonWriter& json, const RankTrace&, const RankResults& rank, int64_t top) {
  json.key("operators").begin_object();
  json.key("distinct").value(static_cast<int64_t>(rank.at<std::vector<OperatorRow>>().size()));
  json.key("top_by_host_self").begin_array();
  int64_t n = 0;
  for (const OperatorRow& row : rank.at<std::vector<OperatorRow>>()) {
    if (top > 0 && n++ == top) break;
    json.begin_object();
    json.key("name").value(row.name);
    json.key("calls").value(row.calls);
    json.key("host_self_us").us(row.host_self);
    json.key("host_total_us").us(row.host_total);
    json.key("device_self_us").us(row.device_self);
    json.key("device_total_us").us(row.device_total);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void write_tensorboard_steps(JsonWriter& json, const RankTrace&, const RankResults& rank, int64_t) {
  json.key("tensorboard_steps").begin_array();
  for (const TensorboardStep& step : rank.at<std::vector<TensorboardStep>>()) {
    json.begin_object();
    json.key("step").value(step.number);
    for (size_t role = 0; role < kNumStepRoles; ++role) {
      json.key(step_role_name(static_cast<StepRole>(role))).us(step.ns[role]);
    }
    json.key("total").us(step.total);
    json.end_object();
  }
  json.end_array();
}

}  // namespace ms::profile
