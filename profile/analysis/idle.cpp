#include "profile/analysis/idle.h"

#include <algorithm>
#include <map>

namespace ms::profile {

std::vector<StreamIdle> stream_idle(const RankTrace& trace, const DeviceView& view, int64_t consecutive_delay) {
  const Events& events = trace.events;
  struct Stream {
    StreamIdle idle;
    int64_t previous_end = INT64_MIN;
  };
  std::map<std::pair<int64_t, int64_t>, Stream> streams;
  for (const DeviceEvent& device : view.devices) {  // by start
    const Lane& lane = trace.lanes[events.lane[device.event]];
    Stream& stream = streams[{lane.process, lane.id}];
    StreamIdle& idle = stream.idle;
    const int64_t start = events.ts[device.event], before = stream.previous_end;
    ++idle.events;
    stream.previous_end = std::max(before, events.end(device.event));
    if (before == INT64_MIN || start <= before) continue;
    const int64_t gap = start - before;
    const bool late_launch = device.launch != kNoLaunch && events.ts[device.launch] > before;
    const IdleKind kind = late_launch               ? IdleKind::kHostWait
                          : gap < consecutive_delay ? IdleKind::kKernelWait
                                                    : IdleKind::kOther;
    idle.idle += gap;
    idle.ns[static_cast<size_t>(kind)] += gap;
    ++idle.gaps[static_cast<size_t>(kind)];
  }
  std::vector<StreamIdle> out;
  for (auto& [key, stream] : streams) {
    stream.idle.device = key.first;
    stream.idle.stream = key.second;
    out.push_back(stream.idle);
  }
  return out;
}

}  // namespace ms::profile
