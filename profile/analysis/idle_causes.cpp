#include "profile/analysis/idle_causes.h"

#include <algorithm>
#include <map>

#include "profile/analysis/step_names.h"

namespace ms::profile {
namespace {

bool holds_any(std::string_view name, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return name.find(word) != std::string_view::npos; });
}

bool synchronises(std::string_view name) {
  return holds_any(name, {"Synchronize", "synchronize", "aten::item", "aten::_local_scalar_dense", "aten::is_nonzero",
                          "aten::nonzero", "StreamSync", "DeviceSync", "EventSync"}) ||
         name == "cudaMemcpy" || name == "hipMemcpy" || name == "cuMemcpyDtoH_v2" || name == "hipMemcpyWithStream";
}

bool allocates(std::string_view name) {
  return holds_any(name, {"Malloc", "cudaFree", "hipFree", "cuMem", "cudaHostAlloc", "hipHostAlloc", "HostRegister"});
}

// The innermost event of one thread at every moment.
struct Piece {
  int64_t start, end;
  uint32_t event;
};

class Reasons {
 public:
  Reasons(const RankTrace& trace, const DeviceView& view)
      : trace_(trace),
        view_(view),
        pieces_(trace.lanes.size()),
        cause_(trace.names.size(), kNotAsked),
        step_names_(step_names(trace)) {
    find_innermost();
  }

  IdleReasons run(const IntervalSet& idle) {
    IdleReasons out;
    for (const Interval& gap : idle.intervals()) {
      out.idle_ns += gap.end - gap.start;
      explain(gap);
    }
    for (auto& [key, reason] : sums_) {
      reason.cause = key.first;
      if (key.second != kNoEvent) reason.name = trace_.names[key.second];
      out.reasons.push_back(std::move(reason));
    }
    std::stable_sort(out.reasons.begin(), out.reasons.end(),
                     [](const IdleReason& a, const IdleReason& b) { return a.ns > b.ns; });
    return out;
  }

 private:
  static constexpr uint8_t kNotAsked = UINT8_MAX;
  static constexpr NameId kNoEvent = UINT32_MAX;
  static constexpr uint16_t kNoLane = UINT16_MAX;

  void find_innermost() {
    const Events& events = trace_.events;
    std::vector<std::vector<uint32_t>> open(trace_.lanes.size());
    std::vector<int64_t> done(trace_.lanes.size(), INT64_MIN);
    // Adds the open events of a lane until `time`, innermost first.
    const auto advance = [&](uint16_t lane, int64_t time) {
      std::vector<uint32_t>& stack = open[lane];
      while (!stack.empty() && done[lane] < time) {
        const uint32_t event = stack.back();
        const int64_t until = std::min(time, events.end(event));
        if (until > done[lane]) {
          pieces_[lane].push_back({done[lane], until, event});
          done[lane] = until;
        }
        if (events.end(event) > time) break;
        stack.pop_back();
      }
    };
    for (size_t i = 0; i < events.size(); ++i) {
      const Side side = trace_.side(i);
      const bool host = side == Side::kOperator || side == Side::kLaunch || side == Side::kPython ||
                        side == Side::kAnnotation || side == Side::kHost;
      if (!host || events.dur[i] <= 0) continue;
      const uint16_t lane = events.lane[i];
      if (is_step(i)) step_lane_ = lane;
      if (is_step(i)) continue;  // says nothing about what is done in it
      advance(lane, events.ts[i]);
      while (!open[lane].empty() && events.end(open[lane].back()) <= events.ts[i]) open[lane].pop_back();
      done[lane] = std::max(done[lane], events.ts[i]);
      open[lane].push_back(static_cast<uint32_t>(i));
    }
    for (size_t lane = 0; lane < open.size(); ++lane) advance(static_cast<uint16_t>(lane), INT64_MAX);
  }

  bool is_step(size_t event) const { return step_names_[trace_.events.name[event]]; }

  void explain(const Interval& gap) {
    const auto next = std::partition_point(view_.devices.begin(), view_.devices.end(), [&](const DeviceEvent& device) {
      return trace_.events.ts[device.event] < gap.end;
    });
    const bool ended_by_work = next != view_.devices.end() && trace_.events.ts[next->event] == gap.end;
    if (!ended_by_work || view_.on_host) {
      const uint16_t lane = ended_by_work ? trace_.events.lane[next->event] : step_lane_;
      return explain_host(lane, gap);
    }
    if (next->launch == kNoLaunch) return explain_host(step_lane_, gap);
    const int64_t launch = std::clamp(trace_.events.ts[next->launch], gap.start, gap.end);
    const int64_t launched = std::clamp(trace_.events.end(next->launch), launch, gap.end);
    if (launch > gap.start) explain_host(trace_.events.lane[next->launch], {gap.start, launch});
    if (launched > launch) add(IdleCause::kHostWork, trace_.events.name[next->launch], launched - launch);
    if (gap.end > launched) {
      const bool latency = gap.end - trace_.events.end(next->launch) <= kLaunchLatency;
      add(latency ? IdleCause::kLaunchLatency : IdleCause::kDependency, trace_.events.name[next->event],
          gap.end - launched);
    }
  }

  // By the innermost events of the lane; where it has none, of the thread that runs the steps.
  void explain_host(uint16_t lane, Interval gap) {
    if (lane == kNoLane) return add(IdleCause::kUnknown, kNoEvent, gap.end - gap.start);
    const std::vector<Piece>& pieces = pieces_[lane];
    auto piece = std::partition_point(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.end <= gap.start; });
    const auto uncovered = [&](int64_t until) {
      if (until <= gap.start) return;
      const uint16_t other = lane == step_lane_ ? kNoLane : step_lane_;
      explain_host(other, {gap.start, until});
    };
    for (; piece != pieces.end() && piece->start < gap.end; ++piece) {
      uncovered(piece->start);
      const int64_t from = std::max(gap.start, piece->start), to = std::min(gap.end, piece->end);
      add(cause_of(piece->event), trace_.events.name[piece->event], to - from);
      gap.start = to;
    }
    uncovered(gap.end);
  }

  IdleCause cause_of(uint32_t event) {
    uint8_t& known = cause_[trace_.events.name[event]];
    if (known == kNotAsked) {
      const std::string& name = trace_.names[trace_.events.name[event]];
      const Side side = trace_.side(event);
      const IdleCause cause = synchronises(name)          ? IdleCause::kSynchronisation
                              : side == Side::kPython     ? IdleCause::kPython
                              : side == Side::kAnnotation ? IdleCause::kAnnotation
                              : allocates(name)           ? IdleCause::kAllocation
                                                          : IdleCause::kHostWork;
      known = static_cast<uint8_t>(cause);
    }
    return static_cast<IdleCause>(known);
  }

  void add(IdleCause cause, NameId name, int64_t ns) {
    IdleReason& reason = sums_[{cause, name}];
    reason.ns += ns;
    ++reason.gaps;
  }

  const RankTrace& trace_;
  const DeviceView& view_;
  std::vector<std::vector<Piece>> pieces_;  // by lane, in order of time
  std::vector<uint8_t> cause_;              // by name
  const std::vector<bool> step_names_;
  uint16_t step_lane_ = kNoLane;
  std::map<std::pair<IdleCause, NameId>, IdleReason> sums_;
};

}  // namespace

std::string_view idle_cause_name(IdleCause cause) {
  constexpr std::string_view kNames[] = {"host_work",  "python",         "synchronisation", "allocation",
                                         "annotation", "launch_latency", "dependency",      "unknown"};
  return kNames[static_cast<size_t>(cause)];
}

IntervalSet wall_time(const RankTrace& trace, const DeviceView& view, const IntervalSet& busy) {
  if (busy.empty()) return {};
  if (view.steps.empty()) return IntervalSet({{busy.intervals().front().start, busy.intervals().back().end}});
  std::vector<Interval> steps;
  for (const Step& step : view.steps) steps.push_back({step.start, step.end});
  for (const DeviceEvent& device : view.devices) {
    if (device.step == kNoStep) continue;
    Interval& step = steps[static_cast<size_t>(device.step)];
    step.end = std::max(step.end, trace.events.end(device.event));
  }
  return unite(IntervalSet(std::move(steps)), busy);
}

IdleReasons idle_reasons(const RankTrace& trace, const DeviceView& view, const IntervalSet& idle) {
  return Reasons(trace, view).run(idle);
}

}  // namespace ms::profile
