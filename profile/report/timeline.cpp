#include "profile/report/timeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "core/error.h"
#include "profile/analysis/collectives.h"
#include "profile/report/table.h"

namespace ms::profile {
namespace {

constexpr uint8_t kHostClass = 3, kNotDrawn = 255;
constexpr size_t kShortName = 100, kWholeName = 400;
constexpr uint32_t kNoSlice = UINT32_MAX;

// Interns names by name and class, up to a number of bytes.
class NamePool {
 public:
  NamePool(std::vector<TimelineName>& out, size_t max_bytes) : out_(out), left_(max_bytes) {}

  // Nullopt if a new name does not fit.
  std::optional<uint32_t> find(const std::string& name, uint8_t klass) {
    const auto [entry, added] = index_.try_emplace({name, klass}, static_cast<uint32_t>(out_.size()));
    if (!added) return entry->second;
    TimelineName made{shorten(readable_name(name), kShortName), {}, klass};
    if (made.text != name) made.whole = shorten(name, kWholeName);
    constexpr size_t kPunctuation = 10;
    const size_t bytes = made.text.size() + made.whole.size() + kPunctuation;
    if (bytes > left_) {
      index_.erase(entry);
      return std::nullopt;
    }
    left_ -= bytes;
    out_.push_back(std::move(made));
    return entry->second;
  }

 private:
  std::vector<TimelineName>& out_;
  size_t left_;
  std::map<std::pair<std::string, uint8_t>, uint32_t> index_;
};

// Builds the lanes of one rank, then adds as many of its events as the limits allow.
class RankPainter {
 public:
  RankPainter(const TimelineInput& rank, int64_t start, int64_t end, const TimelineLimits& limits)
      : trace_(*rank.trace), view_(*rank.view), clock_(rank.clock), start_(start), end_(end), limits_(limits) {
    out_.rank = trace_.rank;
    classes_.assign(trace_.events.size(), kNotDrawn);
    for (size_t i = 0; i < trace_.events.size(); ++i) {
      const Side side = trace_.side(i);
      if (side != Side::kPseudo && !on_device(side)) classes_[i] = kHostClass;
    }
    for (const DeviceEvent& device : view_.devices) classes_[device.event] = static_cast<uint8_t>(device.device_class);
  }

  void choose_lanes(size_t max_lanes) {
    std::vector<int64_t> busy(trace_.lanes.size()), events(trace_.lanes.size());
    for (size_t i = 0; i < trace_.events.size(); ++i) {
      if (classes_[i] == kNotDrawn) continue;
      busy[trace_.events.lane[i]] += trace_.events.dur[i];
      ++events[trace_.events.lane[i]];
    }
    std::vector<uint16_t> order;
    for (size_t lane = 0; lane < busy.size(); ++lane) {
      out_.events += events[lane];
      if (events[lane] > 0) order.push_back(static_cast<uint16_t>(lane));
    }
    std::sort(order.begin(), order.end(), [&](uint16_t a, uint16_t b) {
      return std::tuple(!trace_.lanes[a].device, -busy[a], a) < std::tuple(!trace_.lanes[b].device, -busy[b], b);
    });
    if (order.size() > max_lanes) keep_both_kinds(order, max_lanes);
    lane_of_.assign(trace_.lanes.size(), kNoSlice);
    for (const uint16_t lane : order) {
      lane_of_[lane] = static_cast<uint32_t>(out_.lanes.size());
      TimelineLane& drawn = out_.lanes.emplace_back();
      drawn.name = lane_name(trace_.lanes[lane]);
      drawn.device = trace_.lanes[lane].device;
    }
    for (size_t i = 0; i < trace_.events.size(); ++i) wanted_ += is_candidate(i) ? 1 : 0;
  }

  size_t wanted() const { return wanted_; }

  TimelineRank paint(size_t max_slices, NamePool& names) {
    std::vector<uint32_t> slice_of(trace_.events.size(), kNoSlice);
    std::vector<int64_t> dropped(out_.lanes.size());
    for (const uint32_t event : chosen(max_slices)) slice_of[event] = 0;  // numbered below
    for (size_t i = 0; i < trace_.events.size(); ++i) {
      if (!is_candidate(i)) continue;
      TimelineLane& lane = out_.lanes[lane_of_[trace_.events.lane[i]]];
      if (slice_of[i] != kNoSlice && add_slice(lane, i, names)) {
        slice_of[i] = static_cast<uint32_t>(lane.slices.size() - 1);
      } else {
        slice_of[i] = kNoSlice;
        lane.whole = false;
      }
    }
    number(slice_of);
    for (TimelineLane& lane : out_.lanes) {
      if (!lane.whole) lane.share.assign(limits_.columns, 0);
    }
    cover();
    return std::move(out_);
  }

 private:
  bool is_candidate(size_t event) const {
    return classes_[event] != kNotDrawn && lane_of_[trace_.events.lane[event]] != kNoSlice;
  }
  int64_t since_start(int64_t ts) const { return clock_.to_reference(unix_time(trace_, ts)) - start_; }

  // Keep some threads even if there are many streams, because launches happen on threads.
  void keep_both_kinds(std::vector<uint16_t>& order, size_t max_lanes) const {
    const auto hosts = std::find_if(order.begin(), order.end(), [&](uint16_t l) { return !trace_.lanes[l].device; });
    const size_t devices = static_cast<size_t>(hosts - order.begin()), threads = order.size() - devices;
    const size_t kept_threads = std::min(threads, std::max(max_lanes / 3, max_lanes - std::min(max_lanes, devices)));
    const size_t kept_devices = std::min(devices, max_lanes - kept_threads);
    order.erase(hosts + static_cast<std::ptrdiff_t>(kept_threads), order.end());
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(kept_devices),
                order.begin() + static_cast<std::ptrdiff_t>(devices));
  }

  std::string lane_name(const Lane& lane) const {
    const std::string& own = trace_.names[lane.name];
    if (!own.empty()) return shorten(own, 40);
    return lane.device ? core::cat("stream ", lane.id) : core::cat("thread ", lane.id);
  }

  std::vector<Interval> detailed_steps() const {
    std::vector<Step> steps = view_.steps;
    if (steps.empty()) return {{trace_.first_ts, trace_.last_end}};
    std::sort(steps.begin(), steps.end(),
              [](const Step& a, const Step& b) { return a.end - a.start > b.end - b.start; });
    std::vector<Interval> windows{{steps.front().start, steps.front().end}};
    if (steps.size() > 1) windows.push_back({steps[steps.size() / 2].start, steps[steps.size() / 2].end});
    return windows;
  }

  // The events to show, unordered.
  std::vector<uint32_t> chosen(size_t max_slices) const {
    std::vector<uint32_t> out;
    out.reserve(wanted_);
    for (size_t i = 0; i < trace_.events.size(); ++i) {
      if (is_candidate(i)) out.push_back(static_cast<uint32_t>(i));
    }
    if (out.size() <= max_slices) return out;
    const std::vector<Interval> windows = detailed_steps();
    const auto outside = [&](uint32_t event) {
      const int64_t ts = trace_.events.ts[event];
      return std::none_of(windows.begin(), windows.end(),
                          [&](const Interval& w) { return ts >= w.start && ts < w.end; });
    };
    const auto rank = [&](uint32_t e) {
      return std::tuple(outside(e), classes_[e] == kHostClass, -trace_.events.dur[e], e);
    };
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(max_slices), out.end(),
                     [&](uint32_t a, uint32_t b) { return rank(a) < rank(b); });
    out.resize(max_slices);
    return out;
  }

  // False if its name does not fit, or it is nested too deeply. Call in order of start.
  bool add_slice(TimelineLane& lane, size_t event, NamePool& names) {
    std::vector<int64_t>& open = open_[&lane];
    const int64_t ts = since_start(trace_.events.ts[event]), dur = trace_.events.dur[event];
    while (!open.empty() && open.back() <= ts) open.pop_back();
    if (open.size() >= static_cast<size_t>(limits_.depth)) return false;
    const auto name = names.find(trace_.names[trace_.events.name[event]], classes_[event]);
    if (!name) return false;
    lane.slices.push_back({ts, dur, *name, static_cast<uint16_t>(open.size())});
    open.push_back(ts + dur);
    lane.depth = std::max(lane.depth, static_cast<int>(open.size()));
    return true;
  }

  // slice_of: by event, the index within its lane; changed to the index within the rank.
  void number(std::vector<uint32_t>& slice_of) {
    std::vector<uint32_t> first;
    for (const TimelineLane& lane : out_.lanes) {
      first.push_back(static_cast<uint32_t>(out_.slices));
      out_.slices += static_cast<int64_t>(lane.slices.size());
    }
    for (size_t i = 0; i < slice_of.size(); ++i) {
      if (slice_of[i] != kNoSlice) slice_of[i] += first[lane_of_[trace_.events.lane[i]]];
    }
    for (const DeviceEvent& device : view_.devices) {
      if (device.launch == kNoLaunch) continue;
      const uint32_t from = slice_of[device.launch], to = slice_of[device.event];
      if (from != kNoSlice && to != kNoSlice) out_.flows.push_back({from, to});
    }
    std::sort(out_.flows.begin(), out_.flows.end(),
              [](const TimelineFlow& a, const TimelineFlow& b) { return a.device < b.device; });
  }

  // Nested slices must not count twice.
  void cover() {
    const auto columns = static_cast<int64_t>(limits_.columns);
    const int64_t width = std::max<int64_t>(1, (end_ - start_ + columns - 1) / columns);
    std::vector<std::vector<int64_t>> covered(out_.lanes.size());
    std::vector<int64_t> reached(out_.lanes.size(), INT64_MIN);
    for (size_t i = 0; i < trace_.events.size(); ++i) {
      if (!is_candidate(i)) continue;
      const uint32_t lane = lane_of_[trace_.events.lane[i]];
      if (out_.lanes[lane].whole) continue;
      covered[lane].resize(limits_.columns);
      int64_t from = std::max(since_start(trace_.events.ts[i]), reached[lane]);
      const int64_t to = since_start(trace_.events.end(i));
      reached[lane] = std::max(reached[lane], to);
      for (int64_t column = from / width; from < to && column < columns; ++column) {
        const int64_t stop = std::min(to, (column + 1) * width);
        covered[lane][static_cast<size_t>(column)] += stop - from;
        from = stop;
      }
    }
    for (size_t lane = 0; lane < covered.size(); ++lane) {
      for (size_t c = 0; c < covered[lane].size(); ++c) {
        const int64_t ns = covered[lane][c];
        const auto ninths = static_cast<int64_t>(static_cast<__int128>(ns) * 9 / width);
        out_.lanes[lane].share[c] = ns == 0 ? 0 : static_cast<uint8_t>(std::clamp<int64_t>(ninths, 1, 9));
      }
    }
  }

  const RankTrace& trace_;
  const DeviceView& view_;
  const RankClock& clock_;
  int64_t start_, end_;
  const TimelineLimits& limits_;
  TimelineRank out_;
  std::vector<uint8_t> classes_;   // by event
  std::vector<uint32_t> lane_of_;  // by lane of the trace: index of out_.lanes, kNoSlice: not drawn
  std::map<const TimelineLane*, std::vector<int64_t>> open_;  // ends of the slices that enclose the next one
  size_t wanted_ = 0;
};

}  // namespace

Timeline make_timeline(const std::vector<TimelineInput>& ranks, const TimelineLimits& limits) {
  Timeline out;
  out.start = INT64_MAX;
  out.end = INT64_MIN;
  for (const TimelineInput& rank : ranks) {
    const RankTrace& trace = *rank.trace;
    if (trace.events.size() == 0) continue;
    out.start = std::min(out.start, rank.clock.to_reference(unix_time(trace, trace.first_ts)));
    out.end = std::max(out.end, rank.clock.to_reference(unix_time(trace, trace.last_end)));
  }
  if (out.start >= out.end) return {};
  std::vector<RankPainter> painters;
  painters.reserve(ranks.size());
  size_t waiting = ranks.size(), slices = limits.slices;
  for (const TimelineInput& rank : ranks) {
    painters.emplace_back(rank, out.start, out.end, limits)
        .choose_lanes(std::max<size_t>(1, limits.lanes / ranks.size()));
  }
  // Ranks with few slices leave their unused share to the others.
  std::vector<size_t> order(ranks.size()), part(ranks.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return painters[a].wanted() < painters[b].wanted(); });
  for (const size_t i : order) {
    part[i] = std::min(painters[i].wanted(), slices / waiting);
    slices -= part[i];
    --waiting;
  }
  NamePool names(out.names, limits.name_bytes);
  for (size_t i = 0; i < painters.size(); ++i) out.ranks.push_back(painters[i].paint(part[i], names));
  return out;
}

}  // namespace ms::profile
