// A clock that costs less to read than CLOCK_MONOTONIC, and the conversion of its ticks to nanoseconds.
//
// Uses the processor's time stamp counter if the kernel itself keeps time by it (then it is invariant and synchronised
// between cores), otherwise CLOCK_MONOTONIC. Ticks are converted afterwards, piecewise linearly between marks, which
// keeps order and nesting, and keeps the two clocks together however long a trace is.
#pragma once

#include <cstdint>
#include <vector>

namespace ms::core::trace {

#if defined(__x86_64__)
inline int64_t time_stamp() { return static_cast<int64_t>(__builtin_ia32_rdtsc()); }
#else
inline int64_t time_stamp() { return 0; }
#endif
bool time_stamps_are_usable();

class TickClock {
 public:
  // by_time_stamp: ticks are time_stamp(), otherwise now_ns().
  explicit TickClock(bool by_time_stamp);

  // Reads both clocks. Call it at the start, and after recording what is to be converted.
  void mark();
  int64_t ns(int64_t ticks) const;

 private:
  struct Mark {
    int64_t ticks, ns;
  };
  bool by_time_stamp_;
  std::vector<Mark> marks_;  // ascending in both
};

}  // namespace ms::core::trace
