// Work of many small steps asks now and then whether it is still wanted: a run that a signal ends does not first build
// an index for minutes.
#pragma once

#include <cstdint>
#include <functional>

#include "core/error.h"

namespace ms::train::detail {

class Patience {
 public:
  Patience() = default;  // endless
  explicit Patience(std::function<bool()> stopped) : stopped_(std::move(stopped)) {}

  // Before a step. Throws kIo "interrupted" if stopped() says so; asks it before the first step and every 2^20th after.
  void step() {
    if ((steps_++ & ((int64_t{1} << 20) - 1)) == 0 && stopped_ && stopped_())
      throw core::Error(core::ErrorCode::kIo, "interrupted");
  }

 private:
  std::function<bool()> stopped_;
  int64_t steps_ = 0;
};

}  // namespace ms::train::detail
