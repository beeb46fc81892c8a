#include "profile/analysis/curves.h"

#include <map>
#include <utility>

#include "core/error.h"
#include "profile/analysis/launch.h"

namespace ms::profile {

std::vector<CurvePoint> reduce_to_maxima(const std::vector<CurvePoint>& points, size_t max_points) {
  if (points.size() <= max_points || max_points == 0) return points;
  const int64_t first = points.front().ts, span = points.back().ts - first + 1;
  std::vector<CurvePoint> out;
  __int128 current = -1;
  for (const CurvePoint& point : points) {
    const __int128 part = static_cast<__int128>(point.ts - first) * static_cast<int64_t>(max_points) / span;
    if (part != current) {
      current = part;
      out.push_back(point);
    } else if (point.value > out.back().value) {
      out.back() = point;
    }
  }
  return out;
}

std::vector<Curve> memory_curves(const RankTrace& trace, size_t max_points) {
  struct Device {
    std::vector<CurvePoint> reported, summed;
    int64_t sum = 0;
  };
  std::map<std::pair<int, int>, Device> devices;
  for (const MemoryChange& change : trace.memory) {
    Device& device = devices[{change.device_type, change.device}];
    device.sum += change.bytes;
    device.summed.push_back({change.ts, device.sum});
    if (change.total >= 0) device.reported.push_back({change.ts, change.total});
  }
  std::vector<Curve> out;
  for (const auto& [key, device] : devices) {
    const std::vector<CurvePoint>& points = device.reported.empty() ? device.summed : device.reported;
    out.push_back({key.first == 0 ? std::string("host memory") : core::cat("memory of device ", key.second),
                   Curve::Unit::kBytes, reduce_to_maxima(points, max_points)});
  }
  return out;
}

std::vector<Curve> queue_curves(const RankTrace& trace, const DeviceView& view, size_t max_points) {
  std::vector<Curve> out;
  for (const QueueSeries& series : queue_series(trace, view)) {
    std::vector<CurvePoint> points;
    for (const QueuePoint& point : series.points) points.push_back({point.ts, point.length});
    out.push_back({core::cat("queue of device ", series.device, " stream ", series.stream), Curve::Unit::kLaunches,
                   reduce_to_maxima(points, max_points)});
  }
  return out;
}

}  // namespace ms::profile
