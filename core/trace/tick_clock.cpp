#include "core/trace/tick_clock.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "core/trace/recorder.h"

namespace ms::core::trace {

bool time_stamps_are_usable() {
#if defined(__x86_64__)
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string source;
  return file >> source && source == "tsc";
#else
  return false;
#endif
}

TickClock::TickClock(bool by_time_stamp) : by_time_stamp_(by_time_stamp) { mark(); }

void TickClock::mark() {
  if (!by_time_stamp_) return;
  Mark best{};
  int64_t shortest = INT64_MAX;
  for (int i = 0; i < 5; ++i) {  // at least one is not interrupted between the two clocks
    const int64_t before = time_stamp(), ns = now_ns(), took = time_stamp() - before;
    if (took < shortest) best = {before + took / 2, ns};
    shortest = std::min(shortest, took);
  }
  if (marks_.empty() || (best.ticks > marks_.back().ticks && best.ns > marks_.back().ns)) marks_.push_back(best);
}

int64_t TickClock::ns(int64_t ticks) const {
  if (!by_time_stamp_ || marks_.size() < 2) return by_time_stamp_ ? marks_[0].ns : ticks;
  // Usually between the last two marks; beyond the ends, extrapolates.
  auto b = marks_.end() - 1;
  if (ticks < (b - 1)->ticks) {
    b = std::upper_bound(marks_.begin() + 1, b, ticks, [](int64_t t, const Mark& mark) { return t < mark.ticks; });
  }
  const auto a = b - 1;
  const __int128 run = b->ticks - a->ticks, rise = b->ns - a->ns, along = ticks - a->ticks;
  return a->ns + static_cast<int64_t>(along * rise / run);
}

}  // namespace ms::core::trace
