// The device events of a rank, their classes (traces.md 4.4), their steps, and the host events that launched them.
//
// Every analysis of device time starts here, so that all agree on what counts.
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

// The class of a device event: copies by their category, what the user's rules say, calls of a communicator, and the
// rest by name (traces.md 4.4). Each name is looked at once.
class DeviceClasses {
 public:
  explicit DeviceClasses(const RankTrace& trace) : trace_(trace) {}  // not owned
  DeviceClass operator()(size_t event);

 private:
  struct OfName {
    std::optional<DeviceClass> asked;  // by the user's rules
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
  uint32_t launch = kNoLaunch;  // the host event with its correlation
  int32_t step = kNoStep;       // index of DeviceView::steps
  DeviceClass device_class = DeviceClass::kComputation;
};

struct DeviceView {
  std::vector<Step> steps;           // by start
  std::vector<DeviceEvent> devices;  // by start
  bool on_host = false;              // the trace has no device events: these are events of the host (host_devices.h)
};

// By start.
std::vector<Step> find_steps(const RankTrace& trace);

// Steps and device events of a trace. A device event belongs to the step that holds the start of its launch, or its own
// start if it has none. A CPU-only trace is seen by its operators and calls of a communicator. step_numbers: keep only
// these steps and their events; empty: everything. O(n log n).
DeviceView view_devices(const RankTrace& trace, std::span<const int64_t> step_numbers = {});

// Union of the intervals of one class; of one step, or of all events.
IntervalSet time_of(const RankTrace& trace, const DeviceView& view, DeviceClass device_class,
                    std::optional<int32_t> step = std::nullopt);

}  // namespace ms::profile
