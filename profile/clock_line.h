// One clock for several ranks, from the clock tables in their files (traces.md 7.3, 10.1).
#pragma once

#include <cstdint>
#include <vector>

#include "profile/store.h"

namespace ms::profile {

class ClockLine {
 public:
  // points: sorted by `at`; none: offset 0; one: a constant; more: the line through the first and the last.
  explicit ClockLine(const std::vector<ClockPoint>& points);

  // Own time -> time of rank 0's clock.
  int64_t to_reference(int64_t ts) const { return ts - offset_at(ts); }
  int64_t offset_at(int64_t ts) const;
  int64_t error_ns() const { return error_; }  // of the worse end; -1 when there is no measurement
  double drift_ppm() const;

 private:
  int64_t at_ = 0, offset_ = 0, run_ = 0, rise_ = 0;  // offset(ts) = offset_ + (ts - at_) * rise_ / run_
  int64_t error_ = -1;
};

}  // namespace ms::profile
