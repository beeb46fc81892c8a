// Ticks that cost less to read than CLOCK_MONOTONIC, and what they are in its nanoseconds.
//
// The processor's time stamp counter where the kernel itself keeps time by it (then it is invariant and the same on all
// cores), CLOCK_MONOTONIC elsewhere. Ticks become nanoseconds afterwards, along straight lines between marks, so that
// order and nesting are kept and the two clocks stay together however long a trace is.
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
  // by_time_stamp: ticks are time_stamp(), else now_ns().
  explicit TickClock(bool by_time_stamp);

  // Reads both clocks. Call it at the start, and after what is converted has been recorded.
  void mark();
  int64_t ns(int64_t ticks) const;

 private:
  struct Mark {
    int64_t ticks, ns;
  };
  bool by_time_stamp_;
  std::vector<Mark> marks_;  // growing in both
};

}  // namespace ms::core::trace
