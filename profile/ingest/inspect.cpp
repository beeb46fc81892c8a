#include "profile/ingest/inspect.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "profile/ingest/kineto_words.h"

namespace ms::profile {
namespace {

using core::cat;

// The middle half of the start times, extended by ten times its length on both sides. A few events outside have wrong
// times; many are part of the job, such as a warm-up before a loop of short steps.
struct Bounds {
  int64_t low = INT64_MIN, high = INT64_MAX;
  bool known = false;
};

// With few events there is no middle half. But no profiler records for a day and then for a thousandth of that: an end
// that far from the rest, such as a kernel at ts 0 of a trace in unix time, has a wrong time.
Bounds bounds_of_few(const Column<int64_t>& ts) {
  constexpr int64_t kDay = int64_t{86'400} * 1'000'000'000, kTimes = 1000;
  Bounds bounds;
  const size_t n = ts.size();
  if (n < 3) return bounds;
  const auto is_far = [](int64_t gap, int64_t rest) { return gap > kDay && gap / kTimes > rest; };
  if (is_far(ts[1] - ts[0], ts[n - 1] - ts[1])) {
    bounds.low = ts[1];
  } else if (is_far(ts[n - 1] - ts[n - 2], ts[n - 2] - ts[0])) {
    bounds.high = ts[n - 2];
  }
  return bounds;
}

Bounds bounds_of(const RankTrace& trace) {
  constexpr size_t kFewEvents = 8;   // too few to call one of them an outlier
  constexpr size_t kOneIn = 10'000;  // of the events, or kFewEvents if that is more
  constexpr int64_t kFar = 10;
  const Column<int64_t>& ts = trace.events.ts;
  if (ts.size() < kFewEvents) return bounds_of_few(ts);
  const int64_t first = ts[ts.size() / 4], third = ts[3 * ts.size() / 4];
  const int64_t reach = std::min<int64_t>(third - first, (int64_t{1} << 61) / kFar) * kFar;
  if (reach == 0) return bounds_of_few(ts);
  Bounds bounds{first - reach, third + reach, true};
  const auto most = static_cast<std::ptrdiff_t>(std::max(kFewEvents, ts.size() / kOneIn));
  if (std::lower_bound(ts.begin(), ts.end(), bounds.low) - ts.begin() > most) bounds.low = INT64_MIN;
  if (ts.end() - std::upper_bound(ts.begin(), ts.end(), bounds.high) > most) bounds.high = INT64_MAX;
  return bounds;
}

class Inspector {
 public:
  Inspector(const RankTrace& trace, const std::string& path, ImportStats& stats)
      : trace_(trace), path_(path), stats_(stats), bounds_(bounds_of(trace)) {}

  void look() {
    const Events& events = trace_.events;
    open_.resize(trace_.lanes.size());
    int64_t first = INT64_MAX, last = INT64_MIN;  // events are in order
    for (size_t i = 0; i < events.size() && first == INT64_MAX; ++i) {
      if (!far(i) && !pseudo(i)) first = events.ts[i];
    }
    for (size_t i = events.size(); i-- > 0 && last == INT64_MIN;) {
      if (!far(i) && !pseudo(i)) last = events.ts[i];
    }
    for (size_t i = 0; i < events.size(); ++i) {
      if (pseudo(i)) continue;
      if (far(i)) {
        note("ts_outlier", i);
      } else if (bounds_.known && events.dur[i] / 10 > last - first) {
        note("suspicious_dur", i);
      }
      check_nesting(i);
    }
    if (overlapping_ > 0) stats_.add("overlapping_slices", text_of(first_overlapping_), overlapping_);
  }

 private:
  bool far(size_t i) const { return trace_.events.ts[i] < bounds_.low || trace_.events.ts[i] > bounds_.high; }
  bool pseudo(size_t i) const { return trace_.side(i) == Side::kPseudo; }
  std::string text_of(size_t i) const {
    return cat(path_, ": ", std::string_view(trace_.names[trace_.events.name[i]]).substr(0, 60), " at ts ",
               trace_.events.ts[i], " ns, dur ", trace_.events.dur[i], " ns");
  }
  void note(std::string_view kind, size_t i) { stats_.add(kind, text_of(i)); }

  void check_nesting(size_t i) {
    const Side side = trace_.side(i);
    if (side == Side::kDeviceNoWork || side == Side::kDeviceSync) return;  // they overlap device work by design
    const Events& events = trace_.events;
    if (trace_.comms[events.comm[i]].async) return;  // lasts as long as it is in flight, and several may be
    const int64_t ts = events.ts[i], end = events.end(i);
    std::vector<int64_t>& open = open_[events.lane[i]];
    while (!open.empty() && open.back() <= ts) open.pop_back();
    if (!open.empty() && open.back() < end) {
      if (overlapping_++ == 0) first_overlapping_ = i;
      constexpr int64_t kImpossible = 1'000'000;  // overlap of two kernels on one stream: 1 ms
      if (is_device_work(side) && open.back() - ts > kImpossible) note("suspicious_dur", i);
    }
    // This slice ends after its predecessor: compare the following ones with the later end.
    if (open.empty() || end <= open.back()) {
      open.push_back(end);
    } else {
      open.back() = end;
    }
  }

  const RankTrace& trace_;
  const std::string& path_;
  ImportStats& stats_;
  Bounds bounds_;
  std::vector<std::vector<int64_t>> open_;  // end times of open slices, by lane
  int64_t overlapping_ = 0;
  size_t first_overlapping_ = 0;
};

void look_for_partners(const RankTrace& trace, const std::string& path, ImportStats& stats) {
  std::vector<uint32_t> launched;
  int64_t wanted = 0, missing = 0, before = 0, missing_ns = 0, before_ns = 0;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    if (trace.side(i) == Side::kLaunch && trace.events.correlation[i] != 0)
      launched.push_back(trace.events.correlation[i]);
  }
  if (launched.empty()) return;
  std::sort(launched.begin(), launched.end());
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const uint32_t id = trace.events.correlation[i];
    if (!is_device_work(trace.side(i)) || id == 0) continue;
    ++wanted;
    if (std::binary_search(launched.begin(), launched.end(), id)) continue;
    const bool early = launched_before(id, launched.front());
    ++(early ? before : missing);
    (early ? before_ns : missing_ns) += trace.events.dur[i];
  }
  constexpr int64_t kOneIn = 20;  // 5 %
  const auto example = [&](int64_t count, int64_t ns) {
    return cat(path, ": ", count, " of ", wanted, " kernels, ", ns / 1'000'000, ".", ns / 100'000 % 10, " ms");
  };
  if (missing * kOneIn > wanted) stats.add("no_partner", example(missing, missing_ns), missing);
  if (before * kOneIn > wanted) stats.add("launched_before", example(before, before_ns), before);
}

}  // namespace

void inspect_trace(const RankTrace& trace, const std::string& path, ImportStats& stats) {
  Inspector(trace, path, stats).look();
  look_for_partners(trace, path, stats);
}

}  // namespace ms::profile
