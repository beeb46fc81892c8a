// Idle time, queue lengths and copy bandwidths as Holistic Trace Analysis 0.6.1 counts them (traces.md 14); idle.h,
// launch.h and memory.h are exact.
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
// predecessor ends makes a gap below 0, and counts so. Kinds as in idle.h, where the first event is another one.
struct HtaStreamIdle {
  int64_t stream = 0;
  std::array<std::optional<int64_t>, kNumIdleKinds> ns;  // nothing: the stream has no gap of this kind

  int64_t total() const;
};
// host_wait, kernel_wait or other, as it calls them.
const char* hta_idle_name(IdleKind kind);

// Streams in the order of their first event in the table.
std::vector<HtaStreamIdle> hta_idle(const HtaFrame& frame, int64_t consecutive_delay = kConsecutiveKernelDelay);

// Whether a call is in its list of those that make a queue longer.
bool hta_queues(std::string_view call);

// By stream: the lengths behind every launch (+1) and every start of a launched event (-1). What happens at one
// microsecond is in the order of the table, launches first; HTA itself leaves it to an unstable sort.
std::map<int64_t, HtaSummary> hta_queue_lengths(const HtaFrame& frame);

// By kind, "Memcpy DtoD": the sum of the bandwidths that the file gives, behind every start and end, where it is above
// 0. Its value between copies is what rounding has left of 0, which counts if it is above; an empty copy lasts 1 us.
std::map<std::string, HtaSummary> hta_bandwidths(const HtaFrame& frame);

}  // namespace ms::profile
