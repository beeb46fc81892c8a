#include "profile/analysis/ascend_steps.h"

#include <algorithm>
#include <string>

namespace ms::profile {
namespace {

struct Window {
  std::string number;
  int64_t host_start = 0, start = INT64_MIN, end = INT64_MAX;
  bool has_host = false;
};

// The time of each step on the device: from the task that the step's first launch submitted, to the end of the last
// task that one of its launches submitted, or of the host's annotation if that is later. Launches and tasks are paired
// by flows of the category async_npu.
std::vector<Window> windows_of(const RankTrace& trace, const DeviceView& view) {
  if (view.steps.empty()) return {Window{}};
  struct Arrow {
    int64_t host = 0, device = 0;
    uint16_t lane = 0;
  };
  std::vector<Arrow> arrows;
  {
    std::vector<FlowPoint> points = trace.flows;
    std::stable_sort(points.begin(), points.end(), [](const FlowPoint& a, const FlowPoint& b) {
      return a.category != b.category ? a.category < b.category : a.id != b.id ? a.id < b.id : a.start > b.start;
    });
    for (size_t i = 0; i + 1 < points.size(); ++i) {
      const FlowPoint &from = points[i], &to = points[i + 1];
      if (from.category == to.category && from.id == to.id && from.start && !to.start &&
          trace.names[trace.categories[from.category].name] == "async_npu") {
        arrows.push_back({from.ts, to.ts, to.lane});
      }
    }
  }
  std::sort(arrows.begin(), arrows.end(), [](const Arrow& a, const Arrow& b) { return a.host < b.host; });
  std::vector<Window> out;
  for (const Step& step : view.steps) {
    Window window{std::to_string(step.number), step.start, INT64_MIN, step.end, true};
    for (const Arrow& arrow : arrows) {
      if (arrow.host < step.start || arrow.host >= step.end) continue;
      if (window.start == INT64_MIN) window.start = arrow.device;
      const auto task = std::lower_bound(trace.events.ts.begin(), trace.events.ts.end(), arrow.device);
      for (auto i = static_cast<size_t>(task - trace.events.ts.begin());
           i < trace.events.size() && trace.events.ts[i] == arrow.device; ++i) {
        if (trace.events.lane[i] == arrow.lane) window.end = std::max(window.end, trace.events.end(i));
      }
    }
    if (window.start == INT64_MIN) window.start = step.start;
    out.push_back(std::move(window));
  }
  return out;
}

enum class Part : uint8_t { kNone, kComputing, kCommunication, kFree };

// The column of the step table that the event's time goes to: by the vendor's overlap lanes if the trace has them, else
// by the class of the device event.
Part part_of(const RankTrace& trace, DeviceClasses& classes, size_t event, bool has_overlap) {
  const Lane& lane = trace.lanes[trace.events.lane[event]];
  if (has_overlap) {
    if (trace.names[lane.process_name] != "Overlap Analysis") return Part::kNone;
    const std::string& name = trace.names[trace.events.name[event]];
    return name == "Computing"       ? Part::kComputing
           : name == "Communication" ? Part::kCommunication
           : name == "Free"          ? Part::kFree
                                     : Part::kNone;
  }
  if (!is_device_work(trace.side(event))) return Part::kNone;
  return classes(event) == DeviceClass::kCommunication ? Part::kCommunication : Part::kComputing;
}

}  // namespace

std::vector<AscendStep> ascend_steps(const RankTrace& trace, const DeviceView& view) {
  if (trace.ascend == nullptr) return {};
  const Events& events = trace.events;
  const bool has_overlap = std::any_of(trace.lanes.begin(), trace.lanes.end(), [&](const Lane& lane) {
    return trace.names[lane.process_name] == "Overlap Analysis";
  });
  // Task tables do not contain the starts of steps; the vendor's step table does.
  const bool use_vendor_table = !has_overlap && view.steps.empty() && !trace.ascend->steps.empty();
  if (use_vendor_table || (!has_overlap && view.devices.empty())) return trace.ascend->steps;
  std::vector<AscendStep> out;
  DeviceClasses classes(trace);
  for (const Window& window : windows_of(trace, view)) {
    std::vector<Interval> computing, communication;
    int64_t first = INT64_MAX, last = INT64_MIN, first_work = INT64_MAX, bubble = 0;
    for (size_t i = 0; i < events.size(); ++i) {
      if (events.ts[i] < window.start || events.ts[i] >= window.end) continue;
      if (is_device_work(trace.side(i)) && trace.names[events.name[i]].starts_with("hcom_receive"))
        bubble += events.dur[i];
      const Part part = part_of(trace, classes, i, has_overlap);
      if (part == Part::kNone) continue;
      first = std::min(first, events.ts[i]);
      last = std::max(last, events.end(i));
      if (part == Part::kFree) continue;
      first_work = std::min(first_work, events.ts[i]);
      (part == Part::kComputing ? computing : communication).push_back({events.ts[i], events.end(i)});
    }
    if (first == INT64_MAX) continue;
    const IntervalSet c(std::move(computing)), n(std::move(communication));
    AscendStep row;
    row.step = window.number;
    row.computing = c.length();
    row.communication = n.length();
    row.overlapped = intersect(c, n).length();
    row.communication_not_overlapped = row.communication - row.overlapped;
    row.free = last - first - unite(c, n).length();
    row.bubble = bubble;
    row.stage = last - first - bubble;
    row.preparing = window.has_host && first_work != INT64_MAX ? first_work - window.host_start : 0;
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace ms::profile
