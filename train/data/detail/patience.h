// Lets work of many small steps check regularly whether it should stop, so that a run that is ended by a signal does
// not first build an index for minutes.
#pragma once

#include <cstdint>
#include <functional>

#include "core/error.h"

namespace ms::train::detail {

class Patience {
 public:
  Patience() = default;  // never stops
  explicit Patience(std::function<bool()> stopped) : stopped_(std::move(stopped)) {}

  // Call before each step. Throws kIo "interrupted" if stopped() returns true; calls it before the first step and every
  // 2^20 steps after.
  void step() {
    if ((steps_++ & ((int64_t{1} << 20) - 1)) == 0 && stopped_ && stopped_())
      throw core::Error(core::ErrorCode::kIo, "interrupted");
  }

 private:
  std::function<bool()> stopped_;
  int64_t steps_ = 0;
};

}  // namespace ms::train::detail
