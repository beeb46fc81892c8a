#include "profile/analysis/counter_tracks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "profile/analysis/launch.h"
#include "profile/analysis/memory.h"

namespace ms::profile {
namespace {

std::optional<uint16_t> lane_of(const RankTrace& trace, int64_t device, int64_t stream) {
  for (size_t lane = 0; lane < trace.lanes.size(); ++lane) {
    const Lane& one = trace.lanes[lane];
    if (one.device && one.process == device && one.id == stream) return static_cast<uint16_t>(lane);
  }
  return std::nullopt;
}

}  // namespace

void add_counter_tracks(RankTrace& trace, const DeviceView& view) {
  for (const QueueSeries& queue : queue_series(trace, view)) {
    const auto lane = lane_of(trace, queue.device, queue.stream);
    if (!lane) continue;
    const NameId name = trace.names.intern(core::cat("queue length, stream ", queue.stream));
    for (const QueuePoint& point : queue.points) {
      trace.counters.push_back({point.ts, static_cast<double>(point.length), name, *lane});
    }
  }

  struct Copies {
    uint16_t lane = 0;
    std::vector<std::pair<int64_t, double>> changes;  // ts, GB/s
  };
  std::map<std::string, Copies> by_kind;
  for (const DeviceEvent& device : view.devices) {
    const size_t i = device.event;
    const int64_t bytes = trace.details[trace.events.details[i]].bytes, dur = trace.events.dur[i];
    if (device.device_class != DeviceClass::kMemory || bytes < 0 || dur <= 0) continue;
    Copies& copies = by_kind[copy_kind(trace.names[trace.events.name[i]])];
    if (copies.changes.empty()) copies.lane = trace.events.lane[i];
    const double rate = static_cast<double>(bytes) / static_cast<double>(dur);
    copies.changes.emplace_back(trace.events.ts[i], rate);
    copies.changes.emplace_back(trace.events.end(i), -rate);
  }
  for (auto& [kind, copies] : by_kind) {
    std::stable_sort(copies.changes.begin(), copies.changes.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    const NameId name = trace.names.intern(core::cat(kind, " GB/s"));
    double sum = 0;
    int64_t running = 0;
    for (size_t i = 0; i < copies.changes.size(); ++i) {
      running += copies.changes[i].second > 0 ? 1 : -1;
      sum = running == 0 ? 0 : sum + copies.changes[i].second;  // drop the rounding error when nothing runs
      const bool last_here = i + 1 == copies.changes.size() || copies.changes[i + 1].first != copies.changes[i].first;
      if (last_here) trace.counters.push_back({copies.changes[i].first, sum, name, copies.lane});
    }
  }
}

}  // namespace ms::profile
