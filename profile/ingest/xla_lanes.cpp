#include "profile/ingest/xla_lanes.h"

#include <charconv>
#include <set>
#include <string_view>
#include <vector>

namespace ms::profile {
namespace {

constexpr std::string_view kDevice = "/device:", kStream = "Stream #";

bool is_xla_device(const RankTrace& trace, const Lane& lane) {
  return trace.names[lane.process_name].starts_with(kDevice);
}

// 3 for "/device:TPU:3", also for "/device:TPU:3 (pid 9)".
int64_t device_number(std::string_view process) {
  const std::string_view digits = process.substr(process.rfind(':') + 1);
  int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

}  // namespace

bool assign_xla_lanes(RankTrace& trace) {
  std::set<int64_t> with_streams;  // processes
  bool any = false;
  for (const Lane& lane : trace.lanes) {
    if (lane.device || !is_xla_device(trace, lane)) continue;
    any = true;
    if (trace.names[lane.name].starts_with(kStream)) with_streams.insert(lane.process);
  }
  if (!any) return false;
  enum class Role : uint8_t { kHost, kWork, kScope, kSteps };
  std::vector<Role> roles;
  for (Lane& lane : trace.lanes) {
    roles.push_back(Role::kHost);
    if (lane.device || !is_xla_device(trace, lane)) continue;
    const std::string& thread = trace.names[lane.name];
    const bool stream = thread.starts_with(kStream);
    const bool ops = thread == "XLA Ops" || thread == "Async XLA Ops";
    const bool work = with_streams.count(lane.process) != 0 ? stream : ops;
    roles.back() = work ? Role::kWork : thread == "Steps" ? Role::kSteps : Role::kScope;
    if (roles.back() == Role::kSteps) continue;
    lane.device = true;
    lane.process = device_number(trace.names[lane.process_name]);
  }
  const uint8_t operation = trace.category("xla_op", Side::kDevice),
                copy = trace.category("xla_copy", Side::kDeviceCopy),
                scope = trace.category("xla_scope", Side::kDeviceNoWork),
                step = trace.category("xla_step", Side::kAnnotation);
  Events& events = trace.events;
  for (size_t i = 0; i < events.size(); ++i) {
    switch (roles[events.lane[i]]) {
      case Role::kWork:
        events.category[i] = trace.names[events.name[i]].starts_with("Memcpy") ? copy : operation;
        break;
      case Role::kScope:
        events.category[i] = scope;
        break;
      case Role::kSteps:
        events.category[i] = step;
        break;
      case Role::kHost:
        break;
    }
  }
  return true;
}

}  // namespace ms::profile
