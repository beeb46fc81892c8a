// Kernel counters of this process, for --profile-level level2: hardware events through perf_event_open if allowed; page
// faults, context switches and per-thread scheduling times always.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::core::trace {

class PerfCounters {
 public:
  // Counts all threads that exist now and those they start later. Counters that the kernel forbids are omitted and
  // named in notice().
  PerfCounters();
  ~PerfCounters();
  PerfCounters(const PerfCounters&) = delete;
  PerfCounters& operator=(const PerfCounters&) = delete;

  // Calls emit(series, value) for "cycles", "LLC misses" (if allowed), "page faults" and "context switches" since
  // construction, and per thread for "cpu ns TID" and "runqueue wait ns TID" since the thread began.
  void sample(const std::function<void(std::string_view series, double value)>& emit) const;
  // One line; empty if nothing is missing.
  const std::string& notice() const { return notice_; }

 private:
  struct Series {
    std::string name;
    std::vector<int> files;  // one per thread
  };
  std::vector<Series> hardware_;
  std::string notice_;
  int64_t page_faults_at_start_ = 0, context_switches_at_start_ = 0;
};

}  // namespace ms::core::trace
