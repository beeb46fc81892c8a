// Curves over time for pictures: memory in use and queue lengths, reduced to a number of points without losing a peak.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

struct CurvePoint {
  int64_t ts = 0;  // of the rank's own clock
  int64_t value = 0;
};

struct Curve {
  enum class Unit : uint8_t { kBytes, kLaunches };
  std::string name;
  Unit unit = Unit::kBytes;
  std::vector<CurvePoint> points;  // by time; a value holds until the next one
};

// Of each part of the time the largest value, at the first time it is reached, for at most max_points parts. points:
// by time.
std::vector<CurvePoint> reduce_to_maxima(const std::vector<CurvePoint>& points, size_t max_points);

// Allocated bytes of each device, as the allocator reported them; without reports the running sum of the changes.
std::vector<Curve> memory_curves(const RankTrace& trace, size_t max_points);
// Launches not begun yet, of each stream.
std::vector<Curve> queue_curves(const RankTrace& trace, const DeviceView& view, size_t max_points);

}  // namespace ms::profile
