// Times of the parts of a step, for --timing-log-level: sums since the last log line, and the text of that line. Names,
// levels and form are those of Megatron's timers (megatron/core/timers.py, "minmax").
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/comm/communicator.h"

namespace ms::train {

class StepTimers {
 public:
  enum Timer { kForwardBackward, kAllGradsSync, kOptimizer, kBatchGenerator, kForwardCompute, kBackwardCompute };
  static constexpr int kNumTimers = 6;
  static std::string_view name(Timer timer);  // "forward-backward"
  // --timing-log-level from which a timer is shown: 1 of what happens once a step, 2 of what happens in each
  // micro-batch.
  static int level(Timer timer) { return timer < kBatchGenerator ? 1 : 2; }

  void add(Timer timer, double seconds) { seconds_[timer] += seconds; }
  void end_step() { ++steps_; }

  // The means over the steps, the least and the largest over the ranks of `world`:
  // "times of a step across ranks, (min, max) ms: forward-backward: (12.10, 12.35) | ..". Begins anew. Collective.
  std::string take_line(core::Communicator& world, int64_t timing_log_level);

 private:
  std::array<double, kNumTimers> seconds_{};
  int64_t steps_ = 0;
};

// Adds the time of its life to a timer.
class TimedPart {
 public:
  TimedPart(StepTimers& timers, StepTimers::Timer timer)
      : timers_(timers), timer_(timer), start_ns_(core::trace::now_ns()) {}
  ~TimedPart() { timers_.add(timer_, static_cast<double>(core::trace::now_ns() - start_ns_) * 1e-9); }
  TimedPart(const TimedPart&) = delete;
  TimedPart& operator=(const TimedPart&) = delete;

 private:
  StepTimers& timers_;
  StepTimers::Timer timer_;
  int64_t start_ns_;
};

}  // namespace ms::train
