#include "profile/analysis/breakdown.h"

#include <array>

#include "core/error.h"

namespace ms::profile {
namespace {

Breakdown break_down(const IntervalSet& c, const IntervalSet& n, const IntervalSet& m, int64_t start, int64_t end,
                     int64_t events) {
  Breakdown out;
  const IntervalSet cn = unite(c, n), all = unite(cn, m);
  out.span = end - start;
  out.computing = c.length();
  out.communication = n.length();
  out.memory = m.length();
  out.exposed_communication = subtract(n, c).length();
  out.exposed_memory = subtract(m, cn).length();
  out.busy = all.length();
  out.idle = out.span - out.busy;
  out.overlap = intersect(n, c).length();
  out.events = events;
  MS_CHECK(out.busy == out.computing + out.exposed_communication + out.exposed_memory, "busy ", out.busy, " ns");
  MS_CHECK(out.overlap + out.exposed_communication == out.communication, "communication ", out.communication, " ns");
  MS_CHECK(out.idle >= 0, "span ", out.span, " ns, busy ", out.busy, " ns");
  return out;
}

}  // namespace

std::optional<Breakdown> breakdown(const RankTrace& trace, const DeviceView& view) {
  if (view.devices.empty()) return std::nullopt;
  int64_t end = trace.events.end(view.devices.front().event);
  for (const DeviceEvent& device : view.devices) end = std::max(end, trace.events.end(device.event));
  return break_down(time_of(trace, view, DeviceClass::kComputation), time_of(trace, view, DeviceClass::kCommunication),
                    time_of(trace, view, DeviceClass::kMemory), trace.events.ts[view.devices.front().event], end,
                    static_cast<int64_t>(view.devices.size()));
}

std::vector<StepBreakdown> breakdown_per_step(const RankTrace& trace, const DeviceView& view) {
  struct Parts {
    std::array<std::vector<Interval>, kNumDeviceClasses> by_class;
    int64_t start = INT64_MAX, end = INT64_MIN, events = 0;
  };
  std::vector<Parts> parts(view.steps.size());
  for (const DeviceEvent& device : view.devices) {
    if (device.step == kNoStep) continue;
    Parts& step = parts[static_cast<size_t>(device.step)];
    const Interval interval{trace.events.ts[device.event], trace.events.end(device.event)};
    step.by_class[static_cast<size_t>(device.device_class)].push_back(interval);
    step.start = std::min(step.start, interval.start);
    step.end = std::max(step.end, interval.end);
    ++step.events;
  }
  std::vector<StepBreakdown> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    StepBreakdown row{view.steps[i], std::nullopt};
    if (parts[i].events > 0) {
      const auto set = [&](DeviceClass c) { return IntervalSet(std::move(parts[i].by_class[static_cast<size_t>(c)])); };
      row.devices = break_down(set(DeviceClass::kComputation), set(DeviceClass::kCommunication),
                               set(DeviceClass::kMemory), parts[i].start, parts[i].end, parts[i].events);
    }
    out.push_back(row);
  }
  return out;
}

int64_t devices_outside_steps(const DeviceView& view) {
  int64_t outside = 0;
  for (const DeviceEvent& device : view.devices) outside += device.step == kNoStep ? 1 : 0;
  return outside;
}

std::vector<KernelType> kernel_types(const RankTrace& trace, const DeviceView& view) {
  std::array<IntervalSet, kNumDeviceClasses> time;
  for (int c = 0; c < kNumDeviceClasses; ++c) {
    time[static_cast<size_t>(c)] = time_of(trace, view, static_cast<DeviceClass>(c));
  }
  std::vector<KernelType> out;
  for (int active = 1; active < 1 << kNumDeviceClasses; ++active) {
    std::optional<IntervalSet> exactly;
    std::string name;
    for (int c = 0; c < kNumDeviceClasses; ++c) {
      if ((active >> c & 1) == 0) continue;
      exactly = exactly ? intersect(*exactly, time[static_cast<size_t>(c)]) : time[static_cast<size_t>(c)];
      name += core::cat(name.empty() ? "" : " overlapping ", device_class_name(static_cast<DeviceClass>(c)));
    }
    for (int c = 0; c < kNumDeviceClasses; ++c) {
      if ((active >> c & 1) == 0) exactly = subtract(*exactly, time[static_cast<size_t>(c)]);
    }
    if (const int64_t ns = exactly->length(); ns > 0) out.push_back({name, ns});
  }
  return out;
}

}  // namespace ms::profile
