// The device events of a rank, their classes, their steps, and the host events that launched them.
//
// Every analysis of device time starts here, so that all count the same events.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profile/class_rules.h"
#include "profile/intervals.h"
#include "profile/store.h"

namespace ms::profile {

// Classifies device events: copies by category, then the user's rules, then communicator calls, and the rest by name.
// Each name is examined once.
class DeviceClasses {
 public:
  explicit DeviceClasses(const RankTrace& trace) : trace_(trace) {}  // not owned
  DeviceClass operator()(size_t event);

 private:
  struct OfName {
    std::optional<DeviceClass> by_rule;  // by the user's rules
    DeviceClass ours = DeviceClass::kComputation;
  };
  const RankTrace& trace_;
  std::unordered_map<NameId, OfName> by_name_;
};
DeviceClass class_of_name(std::string_view name);

// A training iteration, from its annotation "ProfilerStep#N" or "iteration N".
struct Step {
  int64_t number = 0;
  int64_t start = 0, end = 0;  // of the annotation, on the host
};

inline constexpr int32_t kNoStep = -1;
inline constexpr uint32_t kNoLaunch = UINT32_MAX;

struct DeviceEvent {
  uint32_t event = 0;           // index of RankTrace::events
  uint32_t launch = kNoLaunch;  // host event with the same correlation
  int32_t step = kNoStep;       // index of DeviceView::steps
  DeviceClass device_class = DeviceClass::kComputation;
};

struct DeviceView {
  std::vector<Step> steps;           // by start
  std::vector<DeviceEvent> devices;  // by start
  bool on_host = false;              // no device events: these are host events (host_devices.h)
};

// Sorted by start.
std::vector<Step> find_steps(const RankTrace& trace);

// Steps and device events of a trace. A device event belongs to the step that contains the start of its launch, or its
// own start if it has no launch. In a CPU-only trace, operators and communicator calls take the place of device events.
// step_numbers: keep only these steps and their events; empty: all. O(n log n).
DeviceView view_devices(const RankTrace& trace, std::span<const int64_t> step_numbers = {});

// Union of the intervals of one class, in one step or in total.
IntervalSet time_of(const RankTrace& trace, const DeviceView& view, DeviceClass device_class,
                    std::optional<int32_t> step = std::nullopt);

}  // namespace ms::profile
