// Why a rank's device was idle: for each moment of a gap, what the host did that should have given it work.
//
// A gap ends with a device event, or with the step. Until that event was launched, the thread that launched it is the
// reason: the innermost operator, runtime call or Python frame on it at each moment; where that thread has no event,
// the thread that runs the steps. From the launch on it is launch latency, or a dependency on other streams if it takes
// longer than kLaunchLatency. Data loading and checkpoints are findings of their own and left out. Where no thread has
// an event, the cause is unknown, and says so. No moment counts twice: the causes add up to the idle time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

enum class IdleCause : uint8_t {
  kHostWork,         // operators and what they call, launches included: the device waits for the host
  kPython,           // Python frames without an operator below
  kSynchronisation,  // the host waits for the device, and launches nothing
  kAllocation,       // allocations and frees of device memory
  kAnnotation,       // only an annotation of the user says what went on
  kLaunchLatency,    // launched, and not begun yet
  kDependency,       // launched long ago: another stream, an event, the communicator
  kUnknown           // nothing in the trace
};
inline constexpr size_t kNumIdleCauses = 8;
std::string_view idle_cause_name(IdleCause cause);  // "host_work", ...

inline constexpr int64_t kLaunchLatency = 100'000;  // ns from the end of a launch to the start of its kernel

struct IdleReason {
  IdleCause cause = IdleCause::kUnknown;
  std::string name;  // of the operator, call, frame or annotation; empty if unknown
  int64_t ns = 0, gaps = 0;
};

struct IdleReasons {
  int64_t idle_ns = 0;
  std::vector<IdleReason> reasons;  // largest first; they add up to idle_ns
};

// When a rank could have worked: its steps, each until its last device event ends, and all device events; without steps
// from the first device event to the last.
IntervalSet wall_time(const RankTrace& trace, const DeviceView& view, const IntervalSet& busy);

// idle: the gaps to explain, of the rank's own clock.
IdleReasons idle_reasons(const RankTrace& trace, const DeviceView& view, const IntervalSet& idle);

}  // namespace ms::profile
