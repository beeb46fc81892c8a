#include "core/layout/schedule_timer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "core/error.h"

namespace ms::layout {
namespace {

struct Listed {
  double start;
  int stage;
  size_t index;  // in the list of the stage
};

// All actions in an order in which they can run: with times above 0 an action starts behind those that it waits for.
std::vector<Listed> in_order(const PipelineSchedule& schedule) {
  const ScheduleReport report = check_schedule(schedule);
  MS_CHECK(report.fault.empty(), report.fault);
  std::vector<Listed> order;
  for (int stage = 0; stage < schedule.placement.stages(); ++stage) {
    const std::vector<double>& starts = report.starts[static_cast<size_t>(stage)];
    for (size_t i = 0; i < starts.size(); ++i) order.push_back({starts[i], stage, i});
  }
  std::ranges::sort(order, {}, [](const Listed& l) { return std::tuple(l.start, l.stage, l.index); });
  return order;
}

}  // namespace

ScheduleTimer::ScheduleTimer(const PipelineSchedule& schedule) {
  const Placement& placement = schedule.placement;
  std::vector<int32_t> last(static_cast<size_t>(placement.stages()), -1);  // of each stage
  std::map<std::tuple<int, bool, int64_t>, int32_t> results;               // (position, forward, micro-batch) -> node
  for (const Listed& listed : in_order(schedule)) {
    const ScheduleAction& action = schedule.actions[static_cast<size_t>(listed.stage)][listed.index];
    const bool forward = action.kind == ScheduleAction::kForward;
    const auto number = static_cast<int32_t>(nodes_.size());
    int32_t& before = last[static_cast<size_t>(listed.stage)];
    Node node{listed.stage * placement.chunks() + action.chunk, action.kind, before};
    const std::optional<Place> source = source_of(placement, listed.stage, action);
    if (source && source->stage != listed.stage) {
      node.source = results.at({placement.position(*source), forward, action.microbatch});
    }
    if (forward || action.kind == ScheduleAction::kBackward || action.kind == ScheduleAction::kBackwardInput) {
      results[{placement.position({listed.stage, action.chunk}), forward, action.microbatch}] = number;
    }
    before = number;
    nodes_.push_back(node);
  }
  ends_.resize(nodes_.size());
}

double ScheduleTimer::makespan(std::span<const ActionTimes> times) {
  double latest = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    double start = node.before >= 0 ? ends_[static_cast<size_t>(node.before)] : 0;
    if (node.source >= 0) start = std::max(start, ends_[static_cast<size_t>(node.source)]);
    ends_[i] = start + times[static_cast<size_t>(node.place)].of(node.kind);
    latest = std::max(latest, ends_[i]);
  }
  return latest;
}

}  // namespace ms::layout
