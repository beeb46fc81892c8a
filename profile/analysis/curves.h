// Curves over time for charts: memory in use and queue lengths, reduced to a number of points that keeps all peaks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

struct CurvePoint {
  int64_t ts = 0;  // on the rank's own clock
  int64_t value = 0;
};

struct Curve {
  enum class Unit : uint8_t { kBytes, kLaunches };
  std::string name;
  Unit unit = Unit::kBytes;
  std::vector<CurvePoint> points;  // by time; a value holds until the next point
};

// Divides the time into at most max_points parts; returns the largest value of each, at the first time it is reached.
// points: sorted by time.
std::vector<CurvePoint> reduce_to_maxima(const std::vector<CurvePoint>& points, size_t max_points);

// Allocated bytes of each device, as the allocator reported them; without reports the running sum of the changes.
std::vector<Curve> memory_curves(const RankTrace& trace, size_t max_points);
// Number of launches not yet started, per stream.
std::vector<Curve> queue_curves(const RankTrace& trace, const DeviceView& view, size_t max_points);

}  // namespace ms::profile
