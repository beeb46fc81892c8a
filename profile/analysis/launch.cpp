#include "profile/analysis/launch.h"

#include <algorithm>
#include <map>

namespace ms::profile {
namespace {

// The value at `share` of a sorted list, interpolated between neighbours.
double percentile(const std::vector<int64_t>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const double rest = at - static_cast<double>(below);
  const auto low = static_cast<double>(sorted[below]);
  return rest == 0 ? low : low + rest * (static_cast<double>(sorted[below + 1]) - low);
}

}  // namespace

std::optional<LaunchStats> launch_stats(const RankTrace& trace, const DeviceView& view) {
  constexpr int64_t kLongLaunch = 50'000, kLongDelay = 100'000;
  const Events& events = trace.events;
  LaunchStats out;
  std::vector<int64_t> delays;
  for (const DeviceEvent& device : view.devices) {
    if (device.launch == kNoLaunch) continue;
    const int64_t host = events.dur[device.launch], work = events.dur[device.event];
    const int64_t delay = std::max<int64_t>(0, events.ts[device.event] - events.end(device.launch));
    delays.push_back(delay);
    out.delay_sum += delay;
    out.delay_max = std::max(out.delay_max, delay);
    out.host_sum += host;
    out.device_sum += work;
    out.short_kernels += work < host ? 1 : 0;
    out.launches_over_50us += host > kLongLaunch ? 1 : 0;
    out.delays_over_100us += delay > kLongDelay ? 1 : 0;
  }
  if (delays.empty()) return std::nullopt;
  out.pairs = static_cast<int64_t>(delays.size());
  const auto middle = delays.begin() + static_cast<std::ptrdiff_t>(delays.size() / 2);
  std::nth_element(delays.begin(), middle, delays.end());
  out.delay_median = *middle;
  if (delays.size() % 2 == 0) {
    const int64_t below = *std::max_element(delays.begin(), middle);
    out.delay_median = below + (out.delay_median - below) / 2;
  }
  return out;
}

namespace {

// When kernels of one stream were launched and started.
struct StreamTimes {
  std::vector<int64_t> launched, started;
};

// Times are mostly in order: the events are, and a stream runs its kernels as they were launched.
void sort_times(std::vector<int64_t>& times) {
  if (!std::is_sorted(times.begin(), times.end())) std::sort(times.begin(), times.end());
}

// At equal times, launches come before starts.
std::vector<QueuePoint> queue_points(StreamTimes& times) {
  sort_times(times.launched);
  sort_times(times.started);
  std::vector<QueuePoint> points;
  points.reserve(times.launched.size() + times.started.size());
  auto launch = times.launched.begin(), start = times.started.begin();
  int64_t length = 0;
  while (start != times.started.end()) {  // no launch is later than the start of its kernel
    const bool launches = launch != times.launched.end() && *launch <= *start;
    length += launches ? 1 : -1;
    points.push_back({launches ? *launch++ : *start++, length});
  }
  return points;
}

// Sorts values whose range is not larger than their number, as queue lengths, which change by one.
void sort_lengths(std::vector<int64_t>& lengths) {
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  std::vector<int64_t> counts(static_cast<size_t>(*most - *least) + 1);
  const int64_t first = *least;
  for (const int64_t length : lengths) ++counts[static_cast<size_t>(length - first)];
  auto out = lengths.begin();
  for (size_t i = 0; i < counts.size(); ++i) out = std::fill_n(out, counts[i], first + static_cast<int64_t>(i));
}

}  // namespace

std::vector<QueueSeries> queue_series(const RankTrace& trace, const DeviceView& view) {
  std::map<std::pair<int64_t, int64_t>, StreamTimes> streams;
  for (const DeviceEvent& device : view.devices) {
    if (device.launch == kNoLaunch) continue;
    const Lane& lane = trace.lanes[trace.events.lane[device.event]];
    const int64_t start = trace.events.ts[device.event];
    StreamTimes& times = streams[{lane.process, lane.id}];
    // A kernel that starts before its launch (clocks of host and device differ) was never queued.
    times.launched.push_back(std::min(trace.events.ts[device.launch], start));
    times.started.push_back(start);
  }
  std::vector<QueueSeries> out;
  for (auto& [stream, times] : streams) out.push_back({stream.first, stream.second, queue_points(times)});
  return out;
}

std::vector<QueueLength> queue_lengths(const RankTrace& trace, const DeviceView& view, int64_t limit) {
  std::vector<QueueLength> out;
  for (const QueueSeries& series : queue_series(trace, view)) {
    QueueLength queue;
    queue.device = series.device;
    queue.stream = series.stream;
    std::vector<int64_t> lengths;
    int64_t sum = 0;
    __int128 weighted = 0;
    const std::vector<QueuePoint>& points = series.points;
    for (size_t i = 0; i < points.size(); ++i) {
      lengths.push_back(points[i].length);
      sum += points[i].length;
      if (i + 1 == points.size()) break;
      const int64_t held = points[i + 1].ts - points[i].ts;
      weighted += static_cast<__int128>(held) * points[i].length;
      if (points[i].length >= limit) queue.ns_at_limit += held;
    }
    sort_lengths(lengths);
    queue.points = static_cast<int64_t>(points.size());
    queue.min = lengths.front();
    queue.max = lengths.back();
    queue.final = points.back().length;
    queue.mean = static_cast<double>(sum) / static_cast<double>(points.size());
    queue.p25 = percentile(lengths, 0.25);
    queue.p50 = percentile(lengths, 0.5);
    queue.p75 = percentile(lengths, 0.75);
    if (const int64_t whole = points.back().ts - points.front().ts; whole > 0) {
      queue.time_weighted_mean = static_cast<double>(weighted) / static_cast<double>(whole);
    }
    out.push_back(queue);
  }
  return out;
}

}  // namespace ms::profile
