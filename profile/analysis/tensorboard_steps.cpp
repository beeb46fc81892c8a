#include "profile/analysis/tensorboard_steps.h"

#include <algorithm>
#include <unordered_set>

namespace ms::profile {
namespace {

bool is_loader(std::string_view name) {
  return name.starts_with("enumerate(DataLoader)#") || name.starts_with("enumerate(DataPipe)#");
}
bool communicates(std::string_view name) { return name.starts_with("nccl:") || name.starts_with("gloo:"); }

bool is_set(const RankTrace& trace, uint32_t event) {
  const std::string& category = trace.names[trace.categories[trace.events.category[event]].name];
  return category.ends_with("memset") || category.ends_with("Memset");
}

// The time of each role over all events of the trace.
std::array<IntervalSet, kNumStepRoles> roles_of(const RankTrace& trace, const DeviceView& view) {
  const Events& events = trace.events;
  std::array<std::vector<Interval>, kNumStepRoles> intervals;
  std::vector<uint8_t> name_kind(trace.names.size());  // 1 loader, 2 communication, 4 step
  for (NameId id = 0; id < trace.names.size(); ++id) {
    const std::string& name = trace.names[id];
    name_kind[id] = static_cast<uint8_t>((is_loader(name) ? 1 : 0) | (communicates(name) ? 2 : 0) |
                                         (name.starts_with("ProfilerStep") ? 4 : 0));
  }
  std::unordered_set<uint32_t> communicating;  // external ids of host operators that communicate
  for (size_t i = 0; i < events.size(); ++i) {
    const Side side = trace.side(i);
    const uint8_t kind = name_kind[events.name[i]];
    const bool host = side == Side::kOperator || side == Side::kAnnotation || side == Side::kPython;
    if (!host && side != Side::kLaunch) continue;
    if ((kind & 4) != 0) continue;
    StepRole role = side == Side::kLaunch ? StepRole::kRuntime : StepRole::kCpuExec;
    if (host && (kind & 1) != 0) role = StepRole::kDataLoader;
    if (host && (kind & 2) != 0) {
      role = StepRole::kCommunication;
      if (events.external[i] != 0) communicating.insert(events.external[i]);
    }
    intervals[static_cast<size_t>(role)].push_back({events.ts[i], events.end(i)});
  }
  for (const DeviceEvent& device : view.devices) {
    StepRole role = StepRole::kKernel;
    if (trace.side(device.event) == Side::kDeviceCopy) {
      role = is_set(trace, device.event) ? StepRole::kMemset : StepRole::kMemcpy;
    } else if (events.external[device.event] != 0 && communicating.count(events.external[device.event]) != 0) {
      role = StepRole::kCommunication;
    }
    intervals[static_cast<size_t>(role)].push_back({events.ts[device.event], events.end(device.event)});
  }
  std::array<IntervalSet, kNumStepRoles> out;
  for (size_t role = 0; role < kNumStepRoles; ++role) out[role] = IntervalSet(std::move(intervals[role]));
  return out;
}

}  // namespace

const char* step_role_name(StepRole role) {
  constexpr const char* kNames[] = {"Kernel",  "Memcpy",     "Memset",   "Communication",
                                    "Runtime", "DataLoader", "CPU Exec", "Other"};
  return kNames[static_cast<size_t>(role)];
}

std::vector<TensorboardStep> tensorboard_steps(const RankTrace& trace, const DeviceView& view) {
  const Events& events = trace.events;
  if (view.steps.empty()) return {};
  // Device work belongs to the step of its launch; work launched before all steps delays the first one.
  std::vector<int64_t> device_end(view.steps.size(), INT64_MIN);
  std::vector<int64_t> devices(view.steps.size());
  int64_t before_all = INT64_MIN;
  for (const DeviceEvent& device : view.devices) {
    if (device.launch == kNoLaunch) continue;
    const int64_t end = events.end(device.event);
    if (events.ts[device.launch] < view.steps.front().start) {
      before_all = std::max(before_all, end);
    }
    if (device.step == kNoStep) continue;
    const auto step = static_cast<size_t>(device.step);
    device_end[step] = std::max(device_end[step], end);
    ++devices[step];
  }
  size_t steps = view.steps.size();
  if (!view.devices.empty()) {
    // The profiler stopped in the last steps: they have no kernels, or clearly fewer than the step before.
    while (steps > 0 && devices[steps - 1] == 0) --steps;
    if (steps >= 2 && 5 * devices[steps - 1] < 4 * devices[steps - 2]) --steps;
  }
  const std::array<IntervalSet, kNumStepRoles> roles = roles_of(trace, view);
  std::vector<TensorboardStep> out;
  int64_t previous_end = before_all;
  for (size_t i = 0; i < steps; ++i) {
    const Step& host = view.steps[i];
    const int64_t start = std::max(previous_end, host.start), end = std::max({start, host.end, device_end[i]});
    previous_end = end;
    TensorboardStep step;
    step.number = host.number;
    step.total = end - start;
    IntervalSet slots({{start, end}});
    for (size_t role = 0; role + 1 < kNumStepRoles; ++role) {
      step.ns[role] = intersect(slots, roles[role]).length();
      slots = subtract(slots, roles[role]);
    }
    step.ns[kNumStepRoles - 1] = slots.length();
    out.push_back(step);
  }
  return out;
}

}  // namespace ms::profile
