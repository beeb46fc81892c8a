// Maps the clock of one rank to the common clock, by the clock table in its file.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/store.h"

namespace ms::profile {

class ClockLine {
 public:
  // points: sorted by `at`. None: offset 0; one: a constant offset; more: the line through the first and the last.
  explicit ClockLine(const std::vector<ClockPoint>& points);

  // Converts a time of the rank's clock to rank 0's clock.
  int64_t to_reference(int64_t ts) const { return ts - offset_at(ts); }
  int64_t offset_at(int64_t ts) const;
  int64_t error_ns() const { return error_; }  // the larger error of both ends; -1 if nothing was measured
  double drift_ppm() const;

 private:
  int64_t at_ = 0, offset_ = 0, run_ = 0, rise_ = 0;  // offset(ts) = offset_ + (ts - at_) * rise_ / run_
  int64_t error_ = -1;
};

}  // namespace ms::profile
