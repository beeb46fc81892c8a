#include "train/loop/step_timers.h"

#include <algorithm>
#include <cstdio>

namespace ms::train {

std::string_view StepTimers::name(Timer timer) {
  constexpr std::array<std::string_view, kNumTimers> kNames = {
      "forward-backward", "all-grads-sync", "optimizer", "batch-generator", "forward-compute", "backward-compute"};
  return kNames[timer];
}

std::string StepTimers::take_line(core::Communicator& world, int64_t timing_log_level) {
  const double to_ms = 1e3 / static_cast<double>(std::max<int64_t>(steps_, 1));
  std::array<double, size_t{2} * kNumTimers> extremes{};  // the largest of t and of -t
  for (size_t i = 0; i < kNumTimers; ++i) {
    extremes[2 * i] = seconds_[i] * to_ms;
    extremes[2 * i + 1] = -seconds_[i] * to_ms;
  }
  if (world.size() > 1) world.allreduce(extremes, core::ReduceOp::kMax);
  std::string line;
  for (int i = 0; i < kNumTimers; ++i) {
    const auto timer = static_cast<Timer>(i);
    if (level(timer) > timing_log_level) continue;
    std::array<char, 64> range;
    std::snprintf(range.data(), range.size(), ": (%.2f, %.2f)", -extremes[static_cast<size_t>(2 * i + 1)],
                  extremes[static_cast<size_t>(2 * i)]);
    line += line.empty() ? "times of a step across ranks, (min, max) ms: " : " | ";
    line += name(timer);
    line += range.data();
  }
  *this = {};
  return line;
}

}  // namespace ms::train
