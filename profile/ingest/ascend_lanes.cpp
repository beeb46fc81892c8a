#include "profile/ingest/ascend_lanes.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "profile/ascend.h"

namespace ms::profile {
namespace {

enum class LaneRole : uint8_t {
  kOther,
  kCann,
  kHardware,
  kCollective,
  kPlane,
  kOverlapComputing,
  kOverlapCommunication,
  kOverlapRest
};

LaneRole role_of(std::string_view process, std::string_view thread) {
  if (process == "CANN") return LaneRole::kCann;
  if (process == "Ascend Hardware") return LaneRole::kHardware;
  if (process == "HCCL" || process == "Communication") {
    return thread.starts_with("Group") ? LaneRole::kCollective : LaneRole::kPlane;
  }
  if (process != "Overlap Analysis") return LaneRole::kOther;
  if (thread == "Computing") return LaneRole::kOverlapComputing;
  return thread == "Communication" ? LaneRole::kOverlapCommunication : LaneRole::kOverlapRest;
}

bool is_computing(std::string_view task) {
  if (task.ends_with(kListedComputation)) return true;
  if (task.starts_with("KERNEL_")) task.remove_prefix(7);
  for (const std::string_view type :
       {"AI_CORE", "AICORE", "AI_VECTOR_CORE", "AIVEC", "MIX_AIC", "MIX_AIV", "AI_CPU", "AICPU", "DSA_SQE"}) {
    if (task == type) return true;
  }
  return false;
}

}  // namespace

bool assign_ascend_lanes(RankTrace& trace) {
  std::vector<LaneRole> roles;
  bool hardware = false, any = false;
  for (const Lane& lane : trace.lanes) {
    LaneRole role = role_of(trace.names[lane.process_name], trace.names[lane.name]);
    // The overlap analysis writes one kind of event per thread, so the role is known without the thread's name.
    roles.push_back(role);
    hardware = hardware || role == LaneRole::kHardware;
    any = any || role != LaneRole::kOther;
  }
  if (!any) return false;
  for (size_t i = 0; i < trace.lanes.size(); ++i) {
    if (roles[i] < LaneRole::kHardware) continue;
    Lane& lane = trace.lanes[i];
    lane.device = true;
    lane.process = 0;
    // Streams keep their numbers; lanes that are not streams get numbers above them.
    constexpr int64_t kCollectives = 10'000, kPlanes = 20'000, kOverlap = 30'000;
    lane.id += roles[i] == LaneRole::kHardware     ? 0
               : roles[i] == LaneRole::kCollective ? kCollectives
               : roles[i] == LaneRole::kPlane      ? kPlanes
                                                   : kOverlap;
  }
  auto tables = std::make_unique<AscendTables>();
  Events& events = trace.events;
  const uint8_t launch = trace.category("cann", Side::kLaunch),
                plane = trace.category("hccl_task", Side::kDeviceNoWork);
  const uint8_t collective = trace.category("collective", Side::kDevice);
  const uint8_t overlap = trace.category("overlap_analysis", Side::kDeviceNoWork);
  const uint8_t computing = trace.category("Computing", Side::kDevice);
  for (size_t i = 0; i < events.size(); ++i) {
    uint8_t& category = events.category[i];
    LaneRole role = roles[events.lane[i]];
    if (role == LaneRole::kOverlapRest && trace.names[trace.lanes[events.lane[i]].name].empty()) {
      const std::string& name = trace.names[events.name[i]];
      if (name == "Computing") role = LaneRole::kOverlapComputing;
      if (name == "Communication") role = LaneRole::kOverlapCommunication;
    }
    switch (role) {
      case LaneRole::kCann:
        if (events.correlation[i] != 0) category = launch;
        break;
      case LaneRole::kHardware: {
        const std::string type = trace.names[trace.categories[category].name];  // set by event_columns.cpp
        ++tables->task_types[type];
        category = trace.category(type, is_computing(type) ? Side::kDevice : Side::kDeviceNoWork);
        break;
      }
      case LaneRole::kCollective:
        category = collective;
        break;
      case LaneRole::kPlane:
        category = plane;
        break;
      case LaneRole::kOverlapComputing:
        category = hardware ? overlap : computing;
        break;
      case LaneRole::kOverlapCommunication:
        category = hardware ? overlap : collective;
        break;
      case LaneRole::kOverlapRest:
        category = overlap;
        break;
      case LaneRole::kOther:
        break;
    }
  }
  trace.ascend = std::move(tables);
  return true;
}

}  // namespace ms::profile
