#include "profile/analysis/results.h"

#include <algorithm>
#include <set>

#include "core/error.h"

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
                        "--step: the traces hold no ProfilerStep annotation; --step-annotation REGEX names others");
    throw core::Error(core::ErrorCode::kNotFound, cat("--step ", number, ": not in the traces; they hold steps ",
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

int threads_for(const Store& store, const AnalysisOptions& options) {
  return std::min(options.threads, std::max(1, static_cast<int>(store.ranks.size())));
}

void add_with_needs(const Section* section, Sections& order) {
  if (std::find(order.begin(), order.end(), section) != order.end()) return;
  for (const Section* needed : section->needs) add_with_needs(needed, order);
  order.push_back(section);
}

}  // namespace

Results analyze(const Store& store, const Sections& sections, const AnalysisOptions& options) {
  core::ThreadPool pool(threads_for(store, options));
  check_steps(store, options.steps);
  Sections order;
  for (const Section* section : sections) add_with_needs(section, order);

  Results out;
  out.sections = sections;
  out.views = view_ranks(store, options, pool);
  out.ranks.resize(out.views.size());
  pool.run_parts(static_cast<int>(out.views.size()), [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const RankTrace& trace = *store.ranks[r];
    RankResults& results = out.ranks[r];
    results.rank = trace.rank;
    results.clock = ClockLine(trace.clocks);
    for (const Section* section : order) {
      if (section->analyse_rank != nullptr) section->analyse_rank({trace, out.views[r], options}, results);
    }
  });
  for (size_t r = 0; r < out.views.size(); ++r) {
    const RankTrace& trace = *store.ranks[r];
    if (!out.views[r].devices.empty()) {
      if (const size_t devices = number_of_devices(trace, out.views[r]); devices > 1) {
        out.warnings.push_back(cat("rank ", trace.rank, " holds events of ", devices,
                                   " devices, which are analysed as one: record a file for each rank"));
      }
      continue;
    }
    out.warnings.push_back(cat("rank ", trace.rank, " has no device events",
                               trace.events.size() == 0 ? ": the trace holds no events" : "",
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
  core::ThreadPool pool(threads_for(store, options));
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
