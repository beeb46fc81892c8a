#include "profile/analysis/results.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/thread_pool.h"
#include "profile/analysis/blame.h"

namespace ms::profile {
namespace {

void check_steps(const Store& store, const std::vector<int64_t>& wanted) {
  if (wanted.empty()) return;
  std::set<int64_t> present;
  for (const auto& trace : store.ranks) {
    for (const Step& step : view_devices(*trace).steps) present.insert(step.number);
  }
  for (const int64_t number : wanted) {
    if (present.count(number) != 0) continue;
    if (present.empty())
      throw core::Error(core::ErrorCode::kNotFound, "--step: the traces hold no ProfilerStep annotation");
    throw core::Error(core::ErrorCode::kNotFound, core::cat("--step ", number, ": not in the traces; they hold steps ",
                                                            *present.begin(), " to ", *present.rbegin()));
  }
}

RankResults analyze_rank(const RankTrace& trace, const DeviceView& view, unsigned sections,
                         const AnalysisOptions& options) {
  RankResults rank;
  rank.rank = trace.rank;
  rank.clock = ClockLine(trace.clocks);
  if (sections & kFacts) rank.facts = facts(trace, view);
  if (sections & (kBreakdown | kFindings)) rank.breakdown = breakdown(trace, view);
  if (sections & kPerStep) {
    rank.per_step = breakdown_per_step(trace, view);
    rank.devices_outside_steps = devices_outside_steps(view);
  }
  if (sections & kKernelTypes) rank.kernel_types = kernel_types(trace, view);
  if (sections & kKernels) rank.kernels = kernel_rows(trace, view);
  if (sections & kOperators) rank.operators = operator_rows(trace, view);
  if (sections & kLaunches) rank.launch = launch_stats(trace, view);
  if (sections & kQueues) rank.queues = queue_lengths(trace, view, options.queue_limit);
  if (sections & kIdle) rank.idle = stream_idle(trace, view, options.consecutive_kernel_delay);
  if (sections & kMemory) {
    rank.memory_operations = memory_operations(trace, view);
    rank.memory_timelines = memory_timelines(trace);
  }
  if (sections & kSteps) rank.ascend_steps = ascend_steps(trace, view);
  if (sections & kTensorboardSteps) rank.tensorboard_steps = tensorboard_steps(trace, view);
  rank.steps.rank = trace.rank;
  if (sections & (kSteps | kFindings)) {
    rank.steps.layout = layout_index(trace);
    rank.steps.rows = step_rows(trace, view);
  }
  return rank;
}

std::vector<DeviceView> view_ranks(const Store& store, const AnalysisOptions& options, core::ThreadPool& pool) {
  std::vector<DeviceView> views(store.ranks.size());
  pool.run_parts(static_cast<int>(views.size()), [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    views[r] = view_devices(*store.ranks[r], options.steps);
  });
  return views;
}

}  // namespace

Results analyze(const Store& store, unsigned sections, const AnalysisOptions& options) {
  core::ThreadPool pool(std::min(options.threads, std::max(1, static_cast<int>(store.ranks.size()))));
  check_steps(store, options.steps);
  Results out;
  out.sections = sections;
  const std::vector<DeviceView> views = view_ranks(store, options, pool);
  out.ranks.resize(views.size());
  pool.run_parts(static_cast<int>(views.size()), [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    out.ranks[r] = analyze_rank(*store.ranks[r], views[r], sections, options);
  });
  for (size_t r = 0; r < views.size(); ++r) {
    if (!views[r].devices.empty()) continue;
    const RankTrace& trace = *store.ranks[r];
    out.warnings.push_back(core::cat("rank ", trace.rank, " has no device events",
                                     trace.events.size() == 0 ? ": the trace holds no events" : "",
                                     ": no breakdown, kernels or device times"));
  }
  if (sections & kSteps) {
    std::vector<RankSteps> steps;
    for (const RankResults& rank : out.ranks) steps.push_back(rank.steps);
    out.cluster = cluster_steps(steps);
  }
  std::vector<RankDevices> devices;
  for (size_t r = 0; r < store.ranks.size(); ++r) devices.push_back({store.ranks[r].get(), &views[r]});
  MatchedComms comms;
  if (sections & (kRanks | kLinks | kPipeline | kPop)) {
    comms = match_comms(devices);
    out.cross = cross_rank(devices, comms, options.align);
    if (sections & kPop) out.pop = pop_efficiencies(devices, comms, out.cross, pool);
    if (sections & kPipeline) out.pipeline = pipeline(devices, comms, out.cross);
    if (devices.size() > 1 && !out.cross.clocks.reliable) {
      out.warnings.push_back(core::cat("nothing is said across ranks: ", out.cross.clocks.why));
    } else if (out.cross.groups_incomplete) {
      out.warnings.push_back("members of some groups have no trace: blame is among the traced ranks only");
    }
  }
  if (sections & kFindings) {
    out.imbalance = imbalance(devices, pool);
    out.findings = find_losses(devices, out.imbalance, pool);
    if (sections & kRanks) blame_waiting(devices, comms, out.cross, out.pipeline, out.findings);
  }
  return out;
}

JobPath analyze_job_path(const Store& store, const AnalysisOptions& options) {
  check_steps(store, options.steps);
  core::ThreadPool pool(std::min(options.threads, std::max(1, static_cast<int>(store.ranks.size()))));
  const std::vector<DeviceView> views = view_ranks(store, options, pool);
  std::vector<RankDevices> devices;
  for (size_t r = 0; r < store.ranks.size(); ++r) devices.push_back({store.ranks[r].get(), &views[r]});
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
