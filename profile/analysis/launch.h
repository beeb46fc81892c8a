// Launches and the device events they submitted: delays between them, and queue lengths of the streams.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

// Over the pairs (launch r, device event k): delay = max(0, k.start - r.end). Each kernel of a graph counts once.
struct LaunchStats {
  int64_t pairs = 0;
  int64_t delay_sum = 0, delay_max = 0, delay_median = 0;  // ns; the median of an even number is the mean of two
  int64_t host_sum = 0, device_sum = 0;                    // ns
  int64_t short_kernels = 0;                               // k.dur < r.dur: launching costs more than the kernel
  int64_t launches_over_50us = 0, delays_over_100us = 0;
};
std::optional<LaunchStats> launch_stats(const RankTrace& trace, const DeviceView& view);  // nullopt without pairs

// Queue of one stream: +1 at the start of a launch, -1 at the start of its kernel. Statistics are over the lengths
// after each change; percentiles interpolate.
struct QueueLength {
  int64_t device = 0, stream = 0;
  int64_t points = 0, min = 0, max = 0, final = 0;
  double mean = 0, p25 = 0, p50 = 0, p75 = 0;
  std::optional<double> time_weighted_mean;  // nullopt if all changes are at one instant
  int64_t ns_at_limit = 0;                   // time at or above the limit
};
constexpr int64_t kQueueLimit = 1024;
std::vector<QueueLength> queue_lengths(const RankTrace& trace, const DeviceView& view, int64_t limit = kQueueLimit);

// One change of a queue, for counter tracks: by time, per stream.
struct QueuePoint {
  int64_t ts = 0;
  int64_t length = 0;
};
struct QueueSeries {
  int64_t device = 0, stream = 0;
  std::vector<QueuePoint> points;
};
std::vector<QueueSeries> queue_series(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
