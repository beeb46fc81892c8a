#include "profile/analysis/operators.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "core/error.h"

namespace ms::profile {
namespace {

bool nests(Side side, Nesting which) {
  if (side == Side::kOperator || side == Side::kLaunch) return true;
  return which == Nesting::kAll && (side == Side::kAnnotation || side == Side::kPython);
}

// Device time of the work that each launch started, in ns, by the event index of the launch.
std::vector<int64_t> device_ns_by_launch(const RankTrace& trace, const DeviceView& view) {
  std::vector<int64_t> out(trace.events.size());
  for (const DeviceEvent& device : view.devices) {
    if (device.launch != kNoLaunch) out[device.launch] += trace.events.dur[device.event];
  }
  return out;
}

}  // namespace

std::vector<std::vector<uint32_t>> nested_events(const RankTrace& trace, Nesting which) {
  std::vector<std::vector<uint32_t>> lanes(trace.lanes.size());
  const Events& events = trace.events;
  for (size_t i = 0; i < events.size(); ++i) {
    if (nests(trace.side(i), which)) lanes[events.lane[i]].push_back(static_cast<uint32_t>(i));
  }
  const auto before = [&](uint32_t a, uint32_t b) {
    if (events.ts[a] != events.ts[b]) return events.ts[a] < events.ts[b];
    if (events.dur[a] != events.dur[b]) return events.dur[a] > events.dur[b];
    const bool launch_a = trace.side(a) == Side::kLaunch, launch_b = trace.side(b) == Side::kLaunch;
    return launch_a != launch_b ? launch_b : a < b;
  };
  for (std::vector<uint32_t>& lane : lanes) {  // in order but for launches that are as long as what they are in
    if (!std::is_sorted(lane.begin(), lane.end(), before)) std::sort(lane.begin(), lane.end(), before);
  }
  return lanes;
}

std::vector<OperatorRow> operator_rows(const RankTrace& trace, const DeviceView& view) {
  const Events& events = trace.events;
  const std::vector<int64_t> device_ns = device_ns_by_launch(trace, view);
  std::vector<OperatorRow> by_name(trace.names.size());
  struct Open {
    uint32_t event;
    int64_t end, self, device_self = 0, device_total = 0;
    bool is_operator, topmost;  // topmost: not inside another operator of the same name
  };
  std::vector<Open> open;
  std::vector<int> open_names(trace.names.size());
  const auto close = [&] {
    const Open closed = open.back();
    open.pop_back();
    if (!open.empty()) open.back().device_total += closed.device_total;
    if (!closed.is_operator) return;
    --open_names[events.name[closed.event]];
    OperatorRow& row = by_name[events.name[closed.event]];
    row.host_self += closed.self;
    row.device_self += closed.device_self;
    if (!closed.topmost) return;
    ++row.calls;
    row.host_total += events.dur[closed.event];
    row.device_total += closed.device_total;
  };
  std::vector<bool> seen(trace.names.size());
  for (const std::vector<uint32_t>& lane : nested_events(trace, Nesting::kOperators)) {
    for (const uint32_t i : lane) {
      while (!open.empty() && open.back().end <= events.ts[i]) close();
      const bool is_operator = trace.side(i) == Side::kOperator;
      if (!open.empty()) open.back().self -= std::min(events.end(i), open.back().end) - events.ts[i];
      Open next{i, events.end(i), events.dur[i], 0, 0, is_operator, true};
      if (is_operator) {
        seen[events.name[i]] = true;
        int& around = open_names[events.name[i]];
        next.topmost = around++ == 0;
      } else if (device_ns[i] != 0) {
        next.device_total = device_ns[i];
        for (size_t k = open.size(); k-- > 0;) {
          if (!open[k].is_operator) continue;
          open[k].device_self += device_ns[i];
          break;
        }
      }
      open.push_back(next);
    }
    while (!open.empty()) close();
  }
  std::vector<OperatorRow> out;
  for (NameId name = 0; name < by_name.size(); ++name) {
    if (!seen[name]) continue;
    by_name[name].name = trace.names[name];
    out.push_back(std::move(by_name[name]));
  }
  std::sort(out.begin(), out.end(), [](const OperatorRow& a, const OperatorRow& b) {
    return a.host_self != b.host_self ? a.host_self > b.host_self : a.name < b.name;
  });
  return out;
}

NameId OperatorCursor::innermost(uint16_t lane, int64_t ts) {
  if (threads_.empty()) {
    std::vector<std::vector<uint32_t>> lanes = nested_events(trace_, Nesting::kOperators);
    threads_.resize(lanes.size());
    for (size_t i = 0; i < lanes.size(); ++i) threads_[i].events = std::move(lanes[i]);
  }
  if (lane >= threads_.size()) return 0;
  Thread& thread = threads_[lane];
  while (thread.next < thread.events.size() && trace_.events.ts[thread.events[thread.next]] <= ts) {
    const uint32_t i = thread.events[thread.next++];
    if (trace_.side(i) == Side::kOperator) thread.open.push_back(i);
  }
  // An operator that has ended cannot answer later queries either.
  while (!thread.open.empty() && trace_.events.end(thread.open.back()) <= ts) thread.open.pop_back();
  return thread.open.empty() ? 0 : trace_.events.name[thread.open.back()];
}

std::vector<std::string> collapsed_stacks(const RankTrace& trace, const DeviceView& view) {
  const Events& events = trace.events;
  std::unordered_map<uint32_t, std::vector<uint32_t>> kernels;
  for (const DeviceEvent& device : view.devices) {
    if (device.launch != kNoLaunch) kernels[device.launch].push_back(device.event);
  }
  std::vector<std::vector<uint32_t>> lanes = nested_events(trace, Nesting::kAll);
  // Steps and "## backward ##" annotations. Stacks of other threads, such as autograd's, begin with those that enclose
  // them.
  std::vector<uint32_t> around;
  size_t main_lane = SIZE_MAX;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    for (const uint32_t i : lanes[lane]) {
      const std::string& name = trace.names[events.name[i]];
      if (name.starts_with("ProfilerStep#") || name == "## backward ##") {
        around.push_back(i);
        main_lane = lane;
      }
    }
  }
  const auto frame_of = [&](uint32_t i) {
    std::string frame = trace.names[events.name[i]];
    for (char& c : frame) {
      if (c == ';' || c == '\n' || c == '\r') c = c == ';' ? ':' : ' ';
    }
    return frame;
  };
  const auto outer_of = [&](size_t lane, int64_t ts) {
    std::string prefix;
    if (lane == main_lane) return prefix;
    for (const uint32_t i : around) {
      if (events.ts[i] <= ts && ts < events.end(i)) prefix += frame_of(i) + ";";
    }
    return prefix;
  };
  std::map<std::string, int64_t> ns;
  std::vector<uint32_t> open;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    for (const uint32_t i : lanes[lane]) {
      while (!open.empty() && events.end(open.back()) <= events.ts[i]) open.pop_back();
      open.push_back(i);
      const auto found = kernels.find(i);
      if (found == kernels.end()) continue;
      std::string path = outer_of(lane, events.ts[open.front()]);
      for (const uint32_t frame : open) path += frame_of(frame) + ";";
      for (const uint32_t kernel : found->second) ns[path + frame_of(kernel)] += events.dur[kernel];
    }
    open.clear();
  }
  std::vector<std::string> out;
  for (const auto& [path, sum] : ns) out.push_back(core::cat(path, " ", sum));
  return out;
}

}  // namespace ms::profile
