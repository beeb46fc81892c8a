// Why a rank's device was idle: for each moment of a gap, what the host did that should have given it work.
//
// A gap ends with a device event, or with the step. Until that event is launched, the thread that launches it is the
// reason: its innermost operator, API call or Python frame at each moment. Calls that launch work count as the operator
// that makes them. Where that thread has no event, the thread that runs the steps counts, then the other threads that
// launch work; annotations of the user count only where nothing else does. A pause of at most kShortPause between two
// events of a thread is the overhead of the event that follows. From the launch on, the time is launch latency, the
// usual distance between queued kernels, or a dependency (see IdleCause). Data loading and checkpoints are findings of
// their own and left out. Where no thread has an event, the cause is unknown. No moment counts twice: the causes add up
// to the idle time.
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
  kHostCopy,         // a copy call that lasts: the host stages pageable memory, or waits for the copy
  kCodeLoading,      // a launch that lasts: the driver loads or compiles the kernel's code
  kAnnotation,       // only an annotation of the user says what went on
  kLaunchLatency,    // launched in the gap, and started within kLaunchLatency
  kBetweenKernels,   // launched before the gap, which is shorter than kQueuedGap: cost of every kernel
  kDependency,       // launched, but neither of the two: an event, another stream, a node of a graph, the driver
  kUnknown           // nothing in the trace
};
inline constexpr size_t kNumIdleCauses = 11;
std::string_view idle_cause_name(IdleCause cause);  // "host_work", ...

// In ns.
inline constexpr int64_t kLaunchLatency = 100'000;     // from the end of a launch to the start of its kernel
inline constexpr int64_t kQueuedGap = 30'000;          // between two kernels that both were launched before
inline constexpr int64_t kShortPause = 50'000;         // of a host thread between two of its events
inline constexpr int64_t kLongCopyCall = 50'000;       // of an asynchronous copy call: it did not return at once
inline constexpr int64_t kLongLaunchCall = 1'000'000;  // of a launch while the device is idle

struct IdleReason {
  IdleCause cause = IdleCause::kUnknown;
  std::string name;  // of the operator, call, frame or annotation; the kernel that waits; empty if unknown
  // Where in the program most of it happens: the nearest module, frame of the user's own code or annotation around it,
  // else the outermost operator. Of a kernel that waits: the graph launch, or what the host does then. Of unknown
  // time: the event that follows ("before aten::zero_"). May be empty.
  std::string where;
  int64_t ns = 0, gaps = 0;
};

struct IdleReasons {
  int64_t idle_ns = 0;
  std::vector<IdleReason> reasons;  // by cause and name, largest first; they add up to idle_ns
  // By cause and place, largest first; `name` is empty. What has no place is left out.
  std::vector<IdleReason> places;
};

// When a rank could have worked: its steps, each until its last device event ends, and all device events; without steps
// from the first device event to the last.
IntervalSet wall_time(const RankTrace& trace, const DeviceView& view, const IntervalSet& busy);

// idle: the gaps to explain, of the rank's own clock.
IdleReasons idle_reasons(const RankTrace& trace, const DeviceView& view, const IntervalSet& idle);

}  // namespace ms::profile
