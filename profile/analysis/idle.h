// Classifies why a stream waits. Every gap between the events of a stream is one of three kinds:
//
//   host_wait    the host had not submitted the kernel: its launch starts after the end of the previous event
//   kernel_wait  it had, and the gap is shorter than `consecutive_delay`: the usual delay between kernels
//   other        another stream, an event or a transfer; see the critical path
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

enum class IdleKind : uint8_t { kHostWait, kKernelWait, kOther };
inline constexpr int kNumIdleKinds = 3;

struct StreamIdle {
  int64_t device = 0, stream = 0, events = 0, idle = 0;  // idle in ns
  std::array<int64_t, kNumIdleKinds> ns{}, gaps{};
};

constexpr int64_t kConsecutiveKernelDelay = 30'000;  // ns, the default of HTA

std::vector<StreamIdle> stream_idle(const RankTrace& trace, const DeviceView& view,
                                    int64_t consecutive_delay = kConsecutiveKernelDelay);

}  // namespace ms::profile
