#include "profile/report/rank_tables.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/error.h"
#include "profile/analysis/ascend_steps.h"
#include "profile/analysis/breakdown.h"
#include "profile/analysis/facts.h"
#include "profile/analysis/kernels.h"
#include "profile/analysis/memory.h"
#include "profile/analysis/operators.h"
#include "profile/analysis/tensorboard_steps.h"

namespace ms::profile {
namespace {

using Unit = DataTable::Unit;

Cell count_or_nothing(int64_t value) { return value < 0 ? Cell() : Cell(value); }
Cell rate(int64_t amount, int64_t ns, int decimals) {  // amount per ns is G per s
  if (amount < 0 || ns == 0) return {};
  return Real{static_cast<double>(amount) / static_cast<double>(ns), decimals};
}
size_t limit(size_t rows, int64_t top) { return top > 0 ? std::min(rows, static_cast<size_t>(top)) : rows; }

const std::vector<DataTable::Column> kBreakdownColumns = {{"span", Unit::kTime},
                                                          {"computing", Unit::kTime},
                                                          {"computing", Unit::kShare},
                                                          {"exposed_comm", Unit::kTime},
                                                          {"exposed_comm", Unit::kShare},
                                                          {"exposed_memory", Unit::kTime},
                                                          {"exposed_memory", Unit::kShare, true},
                                                          {"idle", Unit::kTime},
                                                          {"idle", Unit::kShare},
                                                          {"communication", Unit::kTime, true},
                                                          {"memory", Unit::kTime, true},
                                                          {"overlap", Unit::kTime, true},
                                                          {"overlap", Unit::kShare},
                                                          {"events", Unit::kCount, true}};

std::vector<DataTable::Column> with_breakdown(std::vector<DataTable::Column> first) {
  first.insert(first.end(), kBreakdownColumns.begin(), kBreakdownColumns.end());
  return first;
}

std::vector<Cell> with_breakdown(std::vector<Cell> row, const Breakdown& b) {
  const std::vector<Cell> cells = {Ns{b.span},
                                   Ns{b.computing},
                                   Share{b.computing, b.span},
                                   Ns{b.exposed_communication},
                                   Share{b.exposed_communication, b.span},
                                   Ns{b.exposed_memory},
                                   Share{b.exposed_memory, b.span},
                                   Ns{b.idle},
                                   Share{b.idle, b.span},
                                   Ns{b.communication},
                                   Ns{b.memory},
                                   Ns{b.overlap},
                                   Share{b.overlap, b.communication},
                                   b.events};
  row.insert(row.end(), cells.begin(), cells.end());
  return row;
}

}  // namespace

DataTable facts_table(const Store& store, const Results& results, int64_t) {
  DataTable table("facts", "Ranks",
                  {{"rank"},
                   {"world_size"},
                   {"events"},
                   {"device_events"},
                   {"device_events_with_launch"},
                   {"steps"},
                   {"time", Unit::kTime},
                   {"first_ts_ns"},
                   {"last_end_ns"},
                   {"communicated_bytes"},
                   {"clock_error", Unit::kTime}});
  for (size_t r = 0; r < results.ranks.size(); ++r) {
    const RankResults& rank = results.ranks[r];
    const Facts& f = rank.at<Facts>();
    table.add({int64_t{rank.rank}, count_or_nothing(store.ranks[r]->world_size), f.events, f.device_events,
               f.device_events_with_launch, static_cast<int64_t>(f.steps.size()), Ns{f.last_end - f.first_ts},
               f.first_ts, f.last_end, f.comm_bytes,
               rank.clock.error_ns() < 0 ? Cell() : Cell(Ns{rank.clock.error_ns()})});
  }
  return table;
}

DataTable breakdown_table(const Store&, const Results& results, int64_t) {
  DataTable table("breakdown", "Where device time goes", with_breakdown({{"rank"}}));
  for (const RankResults& rank : results.ranks) {
    if (const auto* times = rank.get<Breakdown>()) table.add(with_breakdown({int64_t{rank.rank}}, *times));
  }
  return table;
}

DataTable per_step_table(const Store&, const Results& results, int64_t) {
  DataTable table("per_step", "Where device time goes, by step",
                  with_breakdown({{"rank"}, {"step"}, {"host", Unit::kTime}}));
  for (const RankResults& rank : results.ranks) {
    for (const StepBreakdown& step : rank.at<PerStep>().rows) {
      if (!step.devices) continue;
      table.add(
          with_breakdown({int64_t{rank.rank}, step.step.number, Ns{step.step.end - step.step.start}}, *step.devices));
    }
  }
  return table;
}

DataTable kernel_types_table(const Store&, const Results& results, int64_t) {
  DataTable table("kernel_types", "What runs at once",
                  {{"rank"}, {"classes", Unit::kText}, {"time", Unit::kTime}, {"of_busy", Unit::kShare}});
  for (const RankResults& rank : results.ranks) {
    int64_t busy = 0;
    for (const KernelType& type : rank.at<std::vector<KernelType>>()) busy += type.ns;
    for (const KernelType& type : rank.at<std::vector<KernelType>>()) {
      table.add({int64_t{rank.rank}, type.classes, Ns{type.ns}, Share{type.ns, busy}});
    }
  }
  return table;
}

DataTable kernels_table(const Store&, const Results& results, int64_t top) {
  DataTable table("kernels", "Kernels",
                  {{"rank"},
                   {"name", Unit::kText},
                   {"class", Unit::kText},
                   {"count"},
                   {"sum", Unit::kTime},
                   {"of_all", Unit::kShare},
                   {"mean_us", Unit::kReal},
                   {"min_us", Unit::kReal, true},
                   {"max_us", Unit::kReal},
                   {"std_us", Unit::kReal, true},
                   {"GFLOP/s", Unit::kReal},
                   {"GB/s", Unit::kReal}});
  for (const RankResults& rank : results.ranks) {
    const auto& kernels = rank.at<std::vector<KernelRow>>();
    int64_t sum = 0;
    for (const KernelRow& row : kernels) sum += row.sum_ns;
    for (size_t i = 0; i < limit(kernels.size(), top); ++i) {
      const KernelRow& row = kernels[i];
      table.add({int64_t{rank.rank}, row.name, std::string(device_class_name(row.device_class)), row.count,
                 Ns{row.sum_ns}, Share{row.sum_ns, sum}, Real{row.mean_ns * 1e-3, 2},
                 Real{static_cast<double>(row.min_ns) * 1e-3, 2}, Real{static_cast<double>(row.max_ns) * 1e-3, 2},
                 Real{row.std_ns * 1e-3, 2}, rate(row.flops, row.flops_ns, 1), rate(row.bytes, row.bytes_ns, 1)});
    }
  }
  return table;
}

DataTable operators_table(const Store&, const Results& results, int64_t top) {
  DataTable table("operators", "Operators of the host",
                  {{"rank"},
                   {"name", Unit::kText},
                   {"calls"},
                   {"host_self", Unit::kTime},
                   {"host_total", Unit::kTime},
                   {"device_self", Unit::kTime},
                   {"device_total", Unit::kTime}});
  for (const RankResults& rank : results.ranks) {
    const auto& operators = rank.at<std::vector<OperatorRow>>();
    for (size_t i = 0; i < limit(operators.size(), top); ++i) {
      const OperatorRow& row = operators[i];
      table.add({int64_t{rank.rank}, row.name, row.calls, Ns{row.host_self}, Ns{row.host_total}, Ns{row.device_self},
                 Ns{row.device_total}});
    }
  }
  return table;
}

DataTable launch_table(const Store&, const Results& results, int64_t) {
  DataTable table("launch", "Launches",
                  {{"rank"},
                   {"pairs"},
                   {"delay_sum", Unit::kTime},
                   {"delay_median", Unit::kTime},
                   {"delay_max", Unit::kTime},
                   {"host_sum", Unit::kTime},
                   {"device_sum", Unit::kTime},
                   {"kernels_shorter_than_launch"},
                   {"launches_over_50us"},
                   {"delays_over_100us"}});
  for (const RankResults& rank : results.ranks) {
    const auto* stats = rank.get<LaunchStats>();
    if (stats == nullptr) continue;
    const LaunchStats& l = *stats;
    table.add({int64_t{rank.rank}, l.pairs, Ns{l.delay_sum}, Ns{l.delay_median}, Ns{l.delay_max}, Ns{l.host_sum},
               Ns{l.device_sum}, l.short_kernels, l.launches_over_50us, l.delays_over_100us});
  }
  return table;
}

DataTable queue_table(const Store&, const Results& results, int64_t) {
  DataTable table("queue", "Queues of the streams",
                  {{"rank"},
                   {"device"},
                   {"stream"},
                   {"points"},
                   {"mean", Unit::kReal},
                   {"min"},
                   {"p25", Unit::kReal},
                   {"p50", Unit::kReal},
                   {"p75", Unit::kReal},
                   {"max"},
                   {"mean_over_time", Unit::kReal},
                   {"final"},
                   {"at_limit", Unit::kTime}});
  for (const RankResults& rank : results.ranks) {
    for (const QueueLength& q : rank.at<std::vector<QueueLength>>()) {
      table.add({int64_t{rank.rank}, q.device, q.stream, q.points, Real{q.mean, 2}, q.min, Real{q.p25, 1},
                 Real{q.p50, 1}, Real{q.p75, 1}, q.max,
                 q.time_weighted_mean ? Cell(Real{*q.time_weighted_mean, 2}) : Cell(), q.final, Ns{q.ns_at_limit}});
    }
  }
  return table;
}

DataTable idle_table(const Store&, const Results& results, int64_t) {
  DataTable table("idle", "Why streams wait",
                  {{"rank"},
                   {"device"},
                   {"stream"},
                   {"events"},
                   {"idle", Unit::kTime},
                   {"host_wait", Unit::kTime},
                   {"host_wait", Unit::kShare},
                   {"kernel_wait", Unit::kTime},
                   {"kernel_wait", Unit::kShare},
                   {"other", Unit::kTime},
                   {"other", Unit::kShare},
                   {"gaps"}});
  for (const RankResults& rank : results.ranks) {
    for (const StreamIdle& idle : rank.at<std::vector<StreamIdle>>()) {
      table.add({int64_t{rank.rank}, idle.device, idle.stream, idle.events, Ns{idle.idle}, Ns{idle.ns[0]},
                 Share{idle.ns[0], idle.idle}, Ns{idle.ns[1]}, Share{idle.ns[1], idle.idle}, Ns{idle.ns[2]},
                 Share{idle.ns[2], idle.idle}, idle.gaps[0] + idle.gaps[1] + idle.gaps[2]});
    }
  }
  return table;
}

DataTable idle_causes_table(const Store&, const Results& results, int64_t top) {
  DataTable table("idle_causes", "What the host did while the device was idle",
                  {{"rank"},
                   {"cause", Unit::kText},
                   {"name", Unit::kText},
                   {"idle", Unit::kTime},
                   {"idle", Unit::kShare},
                   {"gaps"},
                   {"mostly in", Unit::kText}});
  for (const RankResults& rank : results.ranks) {
    const IdleReasons& idle = rank.at<IdleReasons>();
    std::map<std::string_view, std::vector<const IdleReason*>> by_cause;
    std::vector<std::pair<int64_t, std::string_view>> order;  // causes by descending sum
    for (const IdleReason& reason : idle.reasons) by_cause[idle_cause_name(reason.cause)].push_back(&reason);
    for (const auto& [cause, reasons] : by_cause) {
      int64_t sum = 0;
      for (const IdleReason* reason : reasons) sum += reason->ns;
      order.emplace_back(-sum, cause);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [sum, cause] : order) {
      const std::vector<const IdleReason*>& reasons = by_cause.at(cause);
      int64_t gaps = 0;
      for (const IdleReason* reason : reasons) gaps += reason->gaps;
      const auto place = std::find_if(idle.places.begin(), idle.places.end(),
                                      [name = cause](const IdleReason& p) { return idle_cause_name(p.cause) == name; });
      table.add({int64_t{rank.rank}, std::string(cause), std::string("all"), Ns{-sum}, Share{-sum, idle.idle_ns}, gaps,
                 place == idle.places.end() ? std::string() : place->where});
      for (size_t i = 0; i < limit(reasons.size(), top); ++i) {
        if (reasons[i]->name.empty()) continue;
        table.add({int64_t{rank.rank}, std::string(cause), reasons[i]->name, Ns{reasons[i]->ns},
                   Share{reasons[i]->ns, idle.idle_ns}, reasons[i]->gaps, reasons[i]->where});
      }
    }
  }
  return table;
}

DataTable copies_table(const Store&, const Results& results, int64_t) {
  DataTable table(
      "memory_operations", "Copies and sets",
      {{"rank"}, {"kind", Unit::kText}, {"count"}, {"time", Unit::kTime}, {"bytes"}, {"GB/s", Unit::kReal}});
  for (const RankResults& rank : results.ranks) {
    for (const auto& [kind, operation] : rank.at<MemoryUse>().operations) {
      table.add({int64_t{rank.rank}, kind, operation.count, Ns{operation.ns}, count_or_nothing(operation.bytes),
                 rate(operation.bytes, operation.ns, 3)});
    }
  }
  return table;
}

DataTable allocator_table(const Store&, const Results& results, int64_t) {
  DataTable table("memory_timeline", "Memory of the allocators",
                  {{"rank"},
                   {"device", Unit::kText},
                   {"events"},
                   {"peak_allocated_bytes"},
                   {"peak_reserved_bytes"},
                   {"peak_of_changes_bytes"},
                   {"live_blocks_at_end"},
                   {"live_bytes_at_end"},
                   {"frees_without_allocation"}});
  for (const RankResults& rank : results.ranks) {
    for (const auto& [device, t] : rank.at<MemoryUse>().timelines) {
      table.add({int64_t{rank.rank}, core::cat(device.first, ":", device.second), t.events, t.peak_allocated,
                 t.peak_reserved, t.peak_running, t.live_blocks, t.live_bytes, t.frees_without_allocation});
    }
  }
  return table;
}

DataTable live_table(const Store&, const Results& results, int64_t top) {
  DataTable table("memory_at_peak", "What was alive at the peak",
                  {{"rank"}, {"device", Unit::kText}, {"allocated_by", Unit::kText}, {"blocks"}, {"bytes"}});
  for (const RankResults& rank : results.ranks) {
    for (const auto& [device, t] : rank.at<MemoryUse>().timelines) {
      for (size_t i = 0; i < limit(t.at_peak.size(), top); ++i) {
        table.add({int64_t{rank.rank}, core::cat(device.first, ":", device.second), t.at_peak[i].owner,
                   t.at_peak[i].blocks, t.at_peak[i].bytes});
      }
    }
  }
  return table;
}

DataTable ascend_table(const Store&, const Results& results, int64_t) {
  DataTable table("step_trace_time", "Ascend's step table",
                  {{"rank"},
                   {"step", Unit::kText},
                   {"computing", Unit::kTime},
                   {"comm_not_overlapped", Unit::kTime},
                   {"overlapped", Unit::kTime},
                   {"comm", Unit::kTime},
                   {"free", Unit::kTime},
                   {"stage", Unit::kTime},
                   {"bubble", Unit::kTime},
                   {"preparing", Unit::kTime}});
  for (const RankResults& rank : results.ranks) {
    for (const AscendStep& s : rank.at<std::vector<AscendStep>>()) {
      table.add({int64_t{rank.rank}, s.step, Ns{s.computing}, Ns{s.communication_not_overlapped}, Ns{s.overlapped},
                 Ns{s.communication}, Ns{s.free}, Ns{s.stage}, Ns{s.bubble}, Ns{s.preparing}});
    }
  }
  return table;
}

DataTable tensorboard_table(const Store&, const Results& results, int64_t) {
  std::vector<DataTable::Column> columns = {{"rank"}, {"step"}, {"total", Unit::kTime}};
  for (size_t role = 0; role < kNumStepRoles; ++role) {
    columns.push_back({step_role_name(static_cast<StepRole>(role)), Unit::kTime});
  }
  DataTable table("tensorboard_steps", "Steps by role", columns);
  for (const RankResults& rank : results.ranks) {
    for (const TensorboardStep& step : rank.at<std::vector<TensorboardStep>>()) {
      std::vector<Cell> row = {int64_t{rank.rank}, step.number, Ns{step.total}};
      for (const int64_t ns : step.ns) row.emplace_back(Ns{ns});
      table.add(std::move(row));
    }
  }
  return table;
}

}  // namespace ms::profile
