#include "profile/clock_line.h"

#include <algorithm>

namespace ms::profile {

ClockLine::ClockLine(const std::vector<ClockPoint>& points) {
  if (points.empty()) return;
  at_ = points.front().at;
  offset_ = points.front().offset;
  error_ = std::max(points.front().error, points.back().error);
  run_ = points.back().at - at_;
  rise_ = points.back().offset - offset_;
}

int64_t ClockLine::offset_at(int64_t ts) const {
  if (run_ <= 0) return offset_;
  // Exact: 128 bits hold the product, and the quotient is rounded half away from zero.
  const __int128 product = static_cast<__int128>(ts - at_) * rise_;
  const __int128 half = run_ / 2;
  return offset_ + static_cast<int64_t>((product + (product < 0 ? -half : half)) / run_);
}

double ClockLine::drift_ppm() const {
  return run_ > 0 ? 1e6 * static_cast<double>(rise_) / static_cast<double>(run_) : 0;
}

}  // namespace ms::profile
