// Idle time, queue lengths and copy bandwidths by the method of Holistic Trace Analysis 0.6.1; idle.h, launch.h and
// memory.h are exact.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/analysis/hta_frame.h"
#include "profile/analysis/hta_summary.h"
#include "profile/analysis/idle.h"

namespace ms::profile {

// Gaps between consecutive starts and ends on a stream, of kernels and copies. An event that starts before its
// predecessor ends gives a negative gap, which is counted. Kinds as in idle.h, except for the first event.
struct HtaStreamIdle {
  int64_t stream = 0;
  std::array<std::optional<int64_t>, kNumIdleKinds> ns;  // nullopt: the stream has no gap of this kind

  int64_t total() const;
};
// "host_wait", "kernel_wait" or "other", HTA's names.
const char* hta_idle_name(IdleKind kind);

// Streams in the order of their first event in the table.
std::vector<HtaStreamIdle> hta_idle(const HtaFrame& frame, int64_t consecutive_delay = kConsecutiveKernelDelay);

// Whether HTA lists the call as one that lengthens a queue.
bool hta_queues(std::string_view call);

// By stream: the lengths after every launch (+1) and every start of a launched event (-1). Changes at the same
// microsecond follow the order of the table, launches first; HTA's own order comes from an unstable sort.
std::map<int64_t, HtaSummary> hta_queue_lengths(const HtaFrame& frame);

// By kind, "Memcpy DtoD": the sum of the bandwidths in the file, after every start and end, where it is above 0.
// Between copies the sum is a rounding error, which counts if it is above 0; an empty copy lasts 1 us.
std::map<std::string, HtaSummary> hta_bandwidths(const HtaFrame& frame);

}  // namespace ms::profile
