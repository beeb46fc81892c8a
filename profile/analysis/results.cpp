#include "profile/analysis/results.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <set>

#include "core/affinity.h"
#include "core/error.h"
#include "profile/analysis/experts.h"
#include "profile/analysis/recorder.h"

namespace ms::profile {
namespace {

using core::cat;

void check_steps(const Store& store, const std::vector<int64_t>& wanted) {
  if (wanted.empty()) return;
  std::set<int64_t> present;
  for (const auto& trace : store.ranks) {
    for (const Step& step : find_steps(*trace)) present.insert(step.number);
  }
  for (const int64_t number : wanted) {
    if (present.count(number) != 0) continue;
    if (present.empty())
      throw core::Error(core::ErrorCode::kNotFound,
                        "--step: the traces have no ProfilerStep annotation; --step-annotation REGEX selects others");
    throw core::Error(core::ErrorCode::kNotFound, cat("--step ", number, ": not in the traces, which have steps ",
                                                      *present.begin(), " to ", *present.rbegin()));
  }
}

std::vector<DeviceView> view_ranks(const Store& store, const AnalysisOptions& options, core::ThreadPool& pool) {
  std::vector<DeviceView> views(store.ranks.size());
  pool.run_parts(static_cast<int>(views.size()), [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    views[r] = view_devices(*store.ranks[r], options.steps);
  });
  return views;
}

std::vector<RankDevices> devices_of(const Store& store, const std::vector<DeviceView>& views) {
  std::vector<RankDevices> devices;
  for (size_t r = 0; r < store.ranks.size(); ++r) devices.push_back({store.ranks[r].get(), &views[r]});
  return devices;
}

size_t number_of_devices(const RankTrace& trace, const DeviceView& view) {
  std::set<int64_t> devices;
  for (const DeviceEvent& device : view.devices) devices.insert(trace.lanes[trace.events.lane[device.event]].process);
  return view.on_host || trace.ascend != nullptr ? 1 : devices.size();
}

// parts: number of independent tasks. Returns at least 1.
int threads_for(size_t parts, const AnalysisOptions& options) {
  return std::clamp(static_cast<int>(std::min(parts, size_t{1} << 16)), 1, std::max(1, options.threads));
}

void add_with_needs(const Section* section, Sections& order) {
  if (std::find(order.begin(), order.end(), section) != order.end()) return;
  for (const Section* needed : section->needs) add_with_needs(needed, order);
  order.push_back(section);
}

// Runs each section on each rank, on all threads: a trace of one rank runs its sections in parallel.
void analyze_ranks(const Store& store, const Sections& order, const AnalysisOptions& options, core::ThreadPool& pool,
                   Results& out) {
  Sections of_rank;
  std::copy_if(order.begin(), order.end(), std::back_inserter(of_rank),
               [](const Section* section) { return section->analyse_rank != nullptr; });
  // Start at the end of the list: the longest section, idle_causes, is there, and would run alone if started last.
  std::reverse(of_rank.begin(), of_rank.end());
  std::vector<RankResults> results(out.ranks.size() * of_rank.size());
  std::atomic<size_t> next{0};
  pool.run_parts(pool.num_threads(), [&](int) {
    for (size_t i = next++; i < results.size(); i = next++) {
      const size_t rank = i / of_rank.size();
      of_rank[i % of_rank.size()]->analyse_rank({*store.ranks[rank], out.views[rank], options}, results[i]);
    }
  });
  for (size_t i = 0; i < results.size(); ++i) out.ranks[i / of_rank.size()].merge(std::move(results[i]));
}

}  // namespace

Results analyze(const Store& store, const Sections& sections, const AnalysisOptions& options) {
  check_steps(store, options.steps);
  Sections order;
  for (const Section* section : sections) add_with_needs(section, order);
  const int threads = threads_for(store.ranks.size() * order.size(), options);
  const core::CpuShares cpus(threads);
  core::ThreadPool pool(threads, cpus);

  Results out;
  out.sections = sections;
  out.views = view_ranks(store, options, pool);
  out.ranks.resize(out.views.size());
  for (size_t r = 0; r < out.ranks.size(); ++r) {
    out.ranks[r].rank = store.ranks[r]->rank;
    out.ranks[r].clock = ClockLine(store.ranks[r]->clocks);
  }
  const auto is_mstrains = [](const auto& trace) { return !trace->meta.empty(); };
  const auto is_ascends = [](const auto& trace) { return trace->ascend != nullptr; };
  out.set(TraceRecorder{.is_mstrain = std::ranges::all_of(store.ranks, is_mstrains),
                        .is_ascend = std::ranges::any_of(store.ranks, is_ascends)});
  analyze_ranks(store, order, options, pool, out);
  for (size_t r = 0; r < out.views.size(); ++r) {
    const RankTrace& trace = *store.ranks[r];
    if (!out.views[r].devices.empty()) {
      if (const size_t devices = number_of_devices(trace, out.views[r]); devices > 1) {
        out.warnings.push_back(cat("rank ", trace.rank, " has events of ", devices,
                                   " devices, which are analysed as one: record one file per rank"));
      }
      continue;
    }
    if (is_routing_record(trace)) continue;
    out.warnings.push_back(cat("rank ", trace.rank, " has no device events",
                               trace.events.size() == 0 ? ": the trace has no events" : "",
                               ": no breakdown, kernels or device times"));
  }
  const std::vector<RankDevices> devices = devices_of(store, out.views);
  for (const Section* section : order) {
    if (section->analyse_job != nullptr) section->analyse_job({devices, options, pool}, out);
  }
  return out;
}

JobPath analyze_job_path(const Store& store, const AnalysisOptions& options) {
  check_steps(store, options.steps);
  core::ThreadPool pool(threads_for(store.ranks.size(), options));
  const std::vector<DeviceView> views = view_ranks(store, options, pool);
  const std::vector<RankDevices> devices = devices_of(store, views);
  const MatchedComms comms = match_comms(devices);
  return job_path(devices, comms, cross_rank(devices, comms, options.align));
}

std::vector<Mfu> analyze_mfu(const Store& store, const AnalysisOptions& options) {
  check_steps(store, options.steps);
  std::vector<Mfu> out;
  for (const auto& trace : store.ranks) {
    if (auto rank = mfu(*trace, view_devices(*trace, options.steps))) out.push_back(std::move(*rank));
  }
  return out;
}

}  // namespace ms::profile
