#include "profile/analysis/idle_causes.h"

#include <algorithm>
#include <map>

#include "profile/analysis/host_pieces.h"
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
         name == "cudaMemcpy" || name == "hipMemcpy" || name == "cuMemcpyDtoH_v2" || name == "hipMemcpyWithStream" ||
         name == "aclrtMemcpy";
}

bool allocates(std::string_view name) {
  return holds_any(name, {"Malloc", "cudaFree", "hipFree", "aclrtFree", "cuMemCreate", "cuMemMap", "cuMemUnmap",
                          "cuMemRelease", "cuMemAlloc", "cuMemFree", "cudaHostAlloc", "hipHostAlloc", "HostRegister"});
}

bool copies(std::string_view name) {
  return holds_any(name, {"cudaMemcpy", "hipMemcpy", "cuMemcpy", "aclrtMemcpy", "xpuMemcpy"});
}

bool loads_code(std::string_view name) {
  return holds_any(name, {"ModuleLoad", "LibraryLoad", "cuLinkComplete", "hiprtc", "nvrtc"});
}

bool launches_graph(std::string_view name) { return holds_any(name, {"GraphLaunch"}); }

// Properties that the name of a call tells, as bits. Computed once per name, because each takes a search for many
// words.
enum NameUse : uint8_t { kKnown = 1, kSynchronises = 2, kLoadsCode = 4, kCopies = 8, kAllocates = 16, kGraph = 32 };

uint8_t uses_of(std::string_view name) {
  uint8_t uses = kKnown;
  if (synchronises(name)) uses |= kSynchronises;
  if (loads_code(name)) uses |= kLoadsCode;
  if (copies(name)) uses |= kCopies;
  if (allocates(name)) uses |= kAllocates;
  if (launches_graph(name)) uses |= kGraph;
  return uses;
}

class Reasons {
 public:
  Reasons(const RankTrace& trace, const DeviceView& view, const IntervalSet& idle)
      : trace_(trace), view_(view), idle_(idle), pieces_(trace, view, idle), uses_(trace.names.size()) {}

  IdleReasons run() {
    IdleReasons out;
    for (const Interval& gap : idle_.intervals()) {
      out.idle_ns += gap.end - gap.start;
      explain(gap);
    }
    std::map<std::pair<IdleCause, std::string>, IdleReason> places;
    for (auto& [key, sum] : sums_) {
      IdleReason reason{key.first, key.second == kNoName ? "" : trace_.names[key.second], "", sum.ns, sum.gaps};
      int64_t most = 0;
      for (const auto& [where, amount] : sum.places) {
        const std::string text = (reason.cause == IdleCause::kUnknown ? "before " : "") + trace_.names[where];
        if (amount.ns > most) reason.where = text;
        most = std::max(most, amount.ns);
        IdleReason& place = places[{key.first, text}];
        place.cause = key.first;
        place.where = text;
        place.ns += amount.ns;
        place.gaps += amount.gaps;
      }
      if (reason.where == reason.name) reason.where.clear();
      out.reasons.push_back(std::move(reason));
    }
    for (auto& [key, place] : places) out.places.push_back(std::move(place));
    for (std::vector<IdleReason>* list : {&out.reasons, &out.places}) {
      std::stable_sort(list->begin(), list->end(),
                       [](const IdleReason& a, const IdleReason& b) { return a.ns > b.ns; });
    }
    return out;
  }

 private:
  static constexpr NameId kNoName = UINT32_MAX;

  struct Amount {
    int64_t ns = 0, gaps = 0;
  };
  struct Sum : Amount {
    std::map<NameId, Amount> places;
  };

  NameId name_of(uint32_t event) const { return event == kNoEvent ? kNoName : trace_.events.name[event]; }

  void explain(const Interval& gap) {
    const Events& events = trace_.events;
    const auto next = std::partition_point(view_.devices.begin(), view_.devices.end(), [&](const DeviceEvent& device) {
      return events.ts[device.event] < gap.end;
    });
    const bool ended_by_work = next != view_.devices.end() && events.ts[next->event] == gap.end;
    if (!ended_by_work) return explain_host(kNoLane, gap);
    if (view_.on_host) return explain_host(events.lane[next->event], gap);
    if (next->launch == kNoLaunch) return explain_host(kNoLane, gap);
    const uint16_t lane = events.lane[next->launch];
    const int64_t launch_end = events.end(next->launch);
    const int64_t launched = std::clamp(launch_end, gap.start, gap.end);
    if (launched > gap.start) explain_host(lane, {gap.start, launched});
    const int64_t left = gap.end - launched;
    if (left <= 0) return;
    const IdleCause cause =
        launch_end <= gap.start
            ? (left <= kQueuedGap ? IdleCause::kBetweenKernels : IdleCause::kDependency)
            : (gap.end - launch_end <= kLaunchLatency ? IdleCause::kLaunchLatency : IdleCause::kDependency);
    const bool graph = (uses(next->launch) & kGraph) != 0;
    const HostPiece* meanwhile =
        cause == IdleCause::kDependency && !graph ? pieces_.at(lane, launched + left / 2) : nullptr;
    const NameId where = graph ? events.name[next->launch] : meanwhile == nullptr ? kNoName : name_of(meanwhile->event);
    add(cause, events.name[next->event], where, left);
  }

  // Explains the gap by what the lane runs (its innermost events). Where it runs nothing, the other lanes that launch
  // work are asked.
  void explain_host(uint16_t lane, const Interval& gap) {
    std::vector<uint16_t> lanes;
    if (lane != kNoLane) lanes.push_back(lane);
    for (const uint16_t other : pieces_.work_lanes()) {
      if (other != lane) lanes.push_back(other);
    }
    explain_by(lanes, 0, gap, kNoEvent);
  }

  // Explains the gap by lanes[index]; parts that it does not cover are passed on to the lanes after it. annotation: the
  // first annotation that an earlier lane had over the gap, kNoEvent if none.
  void explain_by(const std::vector<uint16_t>& lanes, size_t index, Interval gap, uint32_t annotation) {
    if (index == lanes.size()) return explain_silence(lanes, gap, annotation);
    const Column<HostPiece>& pieces = pieces_.of_lane(lanes[index]);
    auto piece =
        std::partition_point(pieces.begin(), pieces.end(), [&](const HostPiece& p) { return p.end <= gap.start; });
    const auto uncovered = [&](int64_t until, uint32_t by) {
      if (until <= gap.start) return;
      // A short pause between two events of the thread is overhead of the later one (header).
      const bool within = piece != pieces.end() && (by != kNoEvent || piece != pieces.begin());
      const int64_t pause_start = by != kNoEvent ? piece->start : within ? std::prev(piece)->end : 0;
      const auto following = by != kNoEvent && within ? std::next(piece) : piece;
      const int64_t pause_end = by != kNoEvent ? piece->end : within ? piece->start : 0;
      const bool between = within && following != pieces.end() && pause_end - pause_start <= kShortPause &&
                           (by == kNoEvent || trace_.events.end(by) > pause_end || trace_.events.ts[by] < pause_start);
      if (between && trace_.side(following->event) != Side::kAnnotation) {
        add(IdleCause::kHostWork, name_of(following->named), name_of(by != kNoEvent ? by : following->place),
            until - gap.start);
      } else {
        explain_by(lanes, index + 1, {gap.start, until}, annotation != kNoEvent ? annotation : by);
      }
      gap.start = until;
    };
    for (; piece != pieces.end() && piece->start < gap.end; ++piece) {
      uncovered(piece->start, kNoEvent);
      const int64_t to = std::min(gap.end, piece->end);
      const IdleCause cause = cause_of(*piece);
      if (cause == IdleCause::kAnnotation) {
        uncovered(to, piece->event);
        continue;
      }
      // Ordinary calls are named by their operator, which says more than "cudaLaunchKernel"; a call that waits or
      // allocates is named itself.
      const uint32_t named = cause == IdleCause::kHostWork ? piece->named : piece->event;
      add(cause, name_of(named), name_of(piece->place), to - gap.start);
      gap.start = to;
    }
    uncovered(gap.end, kNoEvent);
  }

  void explain_silence(const std::vector<uint16_t>& lanes, const Interval& gap, uint32_t annotation) {
    if (annotation != kNoEvent) {
      return add(IdleCause::kAnnotation, name_of(annotation), kNoName, gap.end - gap.start);
    }
    const HostPiece* following = lanes.empty() ? nullptr : pieces_.after(lanes[0], gap.end);
    add(IdleCause::kUnknown, kNoName, following == nullptr ? kNoName : name_of(following->named), gap.end - gap.start);
  }

  uint8_t uses(uint32_t event) {
    const NameId name = trace_.events.name[event];
    uint8_t& known = uses_[name];
    if (known == 0) known = uses_of(trace_.names[name]);
    return known;
  }

  IdleCause cause_of(const HostPiece& piece) {
    const uint8_t use = uses(piece.event);
    const Side side = trace_.side(piece.event);
    const int64_t dur = trace_.events.dur[piece.event];
    if ((use & kSynchronises) != 0) return IdleCause::kSynchronisation;
    if (side == Side::kPython) return IdleCause::kPython;
    if (side == Side::kAnnotation) return IdleCause::kAnnotation;
    if ((use & kLoadsCode) != 0) return IdleCause::kCodeLoading;
    if ((use & kCopies) != 0 && dur >= kLongCopyCall) return IdleCause::kHostCopy;
    if ((use & kAllocates) != 0) return IdleCause::kAllocation;
    // A long launch means that the driver loads code, except for a graph, whose launch is long by itself.
    if (side == Side::kLaunch && dur >= kLongLaunchCall && (use & kGraph) == 0) return IdleCause::kCodeLoading;
    return IdleCause::kHostWork;
  }

  void add(IdleCause cause, NameId name, NameId where, int64_t ns) {
    Sum& sum = sums_[{cause, name}];
    sum.ns += ns;
    ++sum.gaps;
    if (where == kNoName) return;
    Amount& place = sum.places[where];
    place.ns += ns;
    ++place.gaps;
  }

  const RankTrace& trace_;
  const DeviceView& view_;
  const IntervalSet& idle_;
  const HostPieces pieces_;
  std::vector<uint8_t> uses_;  // NameUse, by name; 0: not yet computed
  std::map<std::pair<IdleCause, NameId>, Sum> sums_;
};

}  // namespace

std::string_view idle_cause_name(IdleCause cause) {
  constexpr std::string_view kNames[] = {"host_work",       "python",       "synchronisation", "allocation",
                                         "host_copy",       "code_loading", "annotation",      "launch_latency",
                                         "between_kernels", "dependency",   "unknown"};
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
  return Reasons(trace, view, idle).run();
}

}  // namespace ms::profile
