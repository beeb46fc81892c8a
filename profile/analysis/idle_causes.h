// Why a rank's device was idle: for each moment of a gap, what the host did instead of submitting work.
//
// A gap ends with a device event, or with the step. Until that event is launched, the thread that launches it is the
// cause: its innermost operator, API call or Python frame at each moment. Calls that launch work count as the operator
// that makes them. If that thread has no event, the thread that runs the steps counts, then the other threads that
// launch work; user annotations count only if there is nothing else. A pause of at most kShortPause between two events
// of a thread is overhead of the later event. From the launch on, the time is launch latency, the usual distance
// between queued kernels, or a dependency (see IdleCause). Data loading and checkpoints are separate findings and
// excluded here. If no thread has an event, the cause is unknown. No moment counts twice: the causes add up to the idle
// time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

enum class IdleCause : uint8_t {
  kHostWork,         // operators and the calls below them, launches included: the device waits for the host
  kPython,           // Python frames without an operator below
  kSynchronisation,  // the host waits for the device and launches nothing
  kAllocation,       // allocations and frees of device memory
  kHostCopy,         // a long copy call: the host stages pageable memory, or waits for the copy
  kCodeLoading,      // a long launch: the driver loads or compiles the kernel's code
  kAnnotation,       // only a user annotation covers the time
  kLaunchLatency,    // launched in the gap, and started within kLaunchLatency
  kBetweenKernels,   // launched before the gap, which is shorter than kQueuedGap: a cost of every kernel
  kDependency,       // launched, but neither of the two: an event, another stream, a node of a graph, the driver
  kUnknown           // no event in the trace
};
inline constexpr size_t kNumIdleCauses = 11;
std::string_view idle_cause_name(IdleCause cause);  // "host_work", ...

// In ns.
inline constexpr int64_t kLaunchLatency = 100'000;     // from the end of a launch to the start of its kernel
inline constexpr int64_t kQueuedGap = 30'000;          // between two kernels, both launched before
inline constexpr int64_t kShortPause = 50'000;         // of a host thread between two of its events
inline constexpr int64_t kLongCopyCall = 50'000;       // of an asynchronous copy call: it did not return immediately
inline constexpr int64_t kLongLaunchCall = 1'000'000;  // of a launch while the device is idle

struct IdleReason {
  IdleCause cause = IdleCause::kUnknown;
  std::string name;  // operator, call, frame or annotation; the waiting kernel; empty if unknown
  // Place in the program where most of it happens: the nearest module, user frame or annotation around it, else the
  // outermost operator. For a waiting kernel: the graph launch, or what the host does then. For unknown time: the event
  // that follows ("before aten::zero_"). May be empty.
  std::string where;
  int64_t ns = 0, gaps = 0;
};

struct IdleReasons {
  int64_t idle_ns = 0;
  std::vector<IdleReason> reasons;  // by cause and name, largest first; sum: idle_ns
  // By cause and place, largest first; `name` is empty. Time without a place is omitted.
  std::vector<IdleReason> places;
};

// When a rank could have worked: its steps, each until its last device event ends, and all device events; without
// steps, from the first device event to the last.
IntervalSet wall_time(const RankTrace& trace, const DeviceView& view, const IntervalSet& busy);

// idle: the gaps to explain, on the rank's own clock.
IdleReasons idle_reasons(const RankTrace& trace, const DeviceView& view, const IntervalSet& idle);

}  // namespace ms::profile
