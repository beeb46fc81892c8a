#include "profile/analysis/host_devices.h"

#include <algorithm>
#include <set>

#include "profile/analysis/findings.h"
#include "profile/analysis/operators.h"

namespace ms::profile {
namespace {

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return name.starts_with(p); });
}

bool communicates(std::string_view name) { return starts_with_any(name, {"gloo:", "mpi:", "ucc:"}); }

bool hands_over(std::string_view name) {
  return name == "record_param_comms" ||
         starts_with_any(name, {"c10d::", "c10d_functional::", "_c10d_functional::", "_c10d_functional_autograd::"});
}

// Role of an event, computed once per name.
enum class Role : uint8_t { kUnknown, kComputes, kCommunicates, kHandsOver };

class HostDevices {
 public:
  explicit HostDevices(const RankTrace& trace) : trace_(trace), roles_(trace.names.size()) {}

  std::vector<DeviceEvent> run() {
    find_communication();
    loading_ = host_phases(trace_, HostPhase::kData).time;
    for (const std::vector<uint32_t>& lane : nested_events(trace_, Nesting::kOperators)) add_operators(lane);
    std::stable_sort(out_.begin(), out_.end(), [](const DeviceEvent& a, const DeviceEvent& b) {
      return a.event < b.event;  // events are sorted by start
    });
    return std::move(out_);
  }

 private:
  Role role(size_t event) {
    Role& known = roles_[trace_.events.name[event]];
    if (known == Role::kUnknown) {
      const std::string& name = trace_.names[trace_.events.name[event]];
      known = communicates(name) ? Role::kCommunicates : hands_over(name) ? Role::kHandsOver : Role::kComputes;
    }
    return known;
  }

  void find_communication() {
    std::set<uint16_t> issuing;
    for (size_t i = 0; i < trace_.events.size(); ++i) {
      const Side side = trace_.side(i);
      if (side != Side::kAnnotation && side != Side::kOperator) continue;
      if (role(i) == Role::kHandsOver) issuing.insert(trace_.events.lane[i]);
      if (role(i) != Role::kCommunicates) continue;
      add(static_cast<uint32_t>(i), DeviceClass::kCommunication);
      communicator_lanes_.insert(trace_.events.lane[i]);
    }
    for (const uint16_t lane : issuing) communicator_lanes_.erase(lane);
  }

  struct Node {
    uint32_t event;
    size_t parent;
    int64_t children = 0;       // time of direct children
    bool communicates = false;  // itself or a descendant
  };

  void add_operators(const std::vector<uint32_t>& lane) {
    constexpr size_t kNone = SIZE_MAX;
    const Events& events = trace_.events;
    std::vector<Node> nodes;
    std::vector<size_t> open;
    for (const uint32_t i : lane) {
      if (trace_.side(i) != Side::kOperator) continue;
      while (!open.empty() && events.end(nodes[open.back()].event) <= events.ts[i]) open.pop_back();
      const size_t parent = open.empty() ? kNone : open.back();
      nodes.push_back({i, parent});
      nodes.back().communicates = role(i) != Role::kComputes;
      if (parent != kNone) {
        nodes[parent].children += std::min(events.end(i), events.end(nodes[parent].event)) - events.ts[i];
      }
      open.push_back(nodes.size() - 1);
    }
    for (size_t n = nodes.size(); n-- > 0;) {
      if (nodes[n].communicates && nodes[n].parent != kNone) nodes[nodes[n].parent].communicates = true;
    }
    std::vector<bool> counted(nodes.size());  // itself or an ancestor is counted, or nothing in it counts
    for (size_t n = 0; n < nodes.size(); ++n) {
      const Node& node = nodes[n];
      counted[n] = node.parent != kNone && counted[node.parent];
      if (counted[n]) continue;
      const int64_t dur = events.dur[node.event];
      counted[n] = role(node.event) != Role::kComputes || (!node.communicates && 2 * node.children < dur);
      if (counted[n] && role(node.event) == Role::kComputes && !of_others(node.event)) {
        add(node.event, DeviceClass::kComputation);
      }
    }
  }

  // Whether the event is on a communicator's own thread, or in a data loader.
  bool of_others(uint32_t event) const {
    if (communicator_lanes_.count(trace_.events.lane[event]) != 0) return true;
    const int64_t ts = trace_.events.ts[event];
    return loading_.length_within({ts, ts + 1}) > 0;
  }

  void add(uint32_t event, DeviceClass device_class) { out_.push_back({event, kNoLaunch, kNoStep, device_class}); }

  const RankTrace& trace_;
  std::vector<Role> roles_;
  std::set<uint16_t> communicator_lanes_;  // with communicator calls and no operators that submit them
  IntervalSet loading_;
  std::vector<DeviceEvent> out_;
};

}  // namespace

std::vector<DeviceEvent> host_devices(const RankTrace& trace) { return HostDevices(trace).run(); }

}  // namespace ms::profile
