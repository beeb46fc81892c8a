#include "profile/report/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

#include "core/error.h"
#include "profile/analysis/collectives.h"

namespace ms::profile {
namespace {

constexpr uint8_t kHostClass = 3;
constexpr int kNumClasses = 4;

struct Drawn {
  uint32_t rank = 0;
  uint16_t lane = 0;
  int64_t busy = 0;
};

class Painter {
 public:
  Painter(const std::vector<RankDevices>& ranks, size_t columns) : ranks_(ranks), columns_(columns) {}

  Timeline paint(size_t max_lanes, size_t max_slices) {
    find_range();
    if (out_.start >= out_.end) return std::move(out_);
    choose_lanes(max_lanes);
    for (const auto& [key, index] : chosen_) cover_lane(key.first, key.second, index);
    add_slices(max_slices);
    return std::move(out_);
  }

 private:
  int64_t common(uint32_t rank, int64_t ts) const { return unix_time(*ranks_[rank].trace, ts); }

  void classify(uint32_t rank) {
    std::vector<uint8_t>& classes = classes_[rank];
    const RankTrace& trace = *ranks_[rank].trace;
    classes.assign(trace.events.size(), 255);  // not drawn
    for (size_t i = 0; i < trace.events.size(); ++i) {
      const Side side = trace.side(i);
      if (side != Side::kPseudo && !on_device(side)) classes[i] = kHostClass;
    }
    for (const DeviceEvent& device : ranks_[rank].view->devices) {
      classes[device.event] = static_cast<uint8_t>(device.device_class);
    }
  }

  void find_range() {
    classes_.resize(ranks_.size());
    out_.start = INT64_MAX;
    out_.end = INT64_MIN;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      classify(r);
      const Events& events = ranks_[r].trace->events;
      for (size_t i = 0; i < events.size(); ++i) {
        if (classes_[r][i] == 255) continue;
        out_.start = std::min(out_.start, common(r, events.ts[i]));
        out_.end = std::max(out_.end, common(r, events.end(i)));
      }
    }
  }

  void choose_lanes(size_t max_lanes) {
    std::vector<Drawn> drawn;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      const RankTrace& trace = *ranks_[r].trace;
      std::vector<int64_t> busy(trace.lanes.size());
      for (size_t i = 0; i < trace.events.size(); ++i) {
        if (classes_[r][i] != 255) busy[trace.events.lane[i]] += trace.events.dur[i];
      }
      for (size_t lane = 0; lane < busy.size(); ++lane) {
        if (busy[lane] > 0) drawn.push_back({r, static_cast<uint16_t>(lane), busy[lane]});
      }
    }
    // Devices first: they are what the page is about.
    const auto device = [&](const Drawn& d) { return ranks_[d.rank].trace->lanes[d.lane].device; };
    std::stable_sort(drawn.begin(), drawn.end(), [&](const Drawn& a, const Drawn& b) {
      return device(a) != device(b) ? device(a) : a.busy > b.busy;
    });
    if (drawn.size() > max_lanes) drawn.resize(max_lanes);
    std::stable_sort(drawn.begin(), drawn.end(), [&](const Drawn& a, const Drawn& b) {
      return a.rank != b.rank ? a.rank < b.rank : device(a) != device(b) ? device(b) : a.lane < b.lane;
    });
    for (const Drawn& d : drawn) {
      const RankTrace& trace = *ranks_[d.rank].trace;
      const Lane& lane = trace.lanes[d.lane];
      const std::string& own = trace.names[lane.name];
      chosen_[{d.rank, d.lane}] = static_cast<uint32_t>(out_.lanes.size());
      out_.lanes.push_back({trace.rank, lane.device,
                            !own.empty()  ? own
                            : lane.device ? core::cat("stream ", lane.id)
                                          : core::cat("thread ", lane.id),
                            std::vector<uint8_t>(columns_), std::vector<uint8_t>(columns_)});
    }
  }

  // Nested slices of the host cover the same time once.
  void cover_lane(uint32_t rank, uint16_t lane, uint32_t index) {
    const Events& events = ranks_[rank].trace->events;
    std::vector<std::array<int64_t, kNumClasses>> covered(columns_);
    const int64_t span = out_.end - out_.start;
    int64_t reached = INT64_MIN;
    for (size_t i = 0; i < events.size(); ++i) {
      if (events.lane[i] != lane || classes_[rank][i] == 255) continue;
      int64_t start = std::max(common(rank, events.ts[i]), reached);
      const int64_t end = common(rank, events.end(i));
      reached = std::max(reached, end);
      while (start < end) {
        const auto column =
            static_cast<size_t>(static_cast<__int128>(start - out_.start) * static_cast<int64_t>(columns_) / span);
        if (column >= columns_) break;
        const int64_t next =
            out_.start + static_cast<int64_t>((static_cast<__int128>(span) * static_cast<int64_t>(column + 1) +
                                               static_cast<int64_t>(columns_) - 1) /
                                              static_cast<int64_t>(columns_));
        const int64_t stop = std::min(end, std::max(next, start + 1));
        covered[column][classes_[rank][i]] += stop - start;
        start = stop;
      }
    }
    const int64_t width = std::max<int64_t>(1, span / static_cast<int64_t>(columns_));
    TimelineLane& out = out_.lanes[index];
    for (size_t c = 0; c < columns_; ++c) {
      int64_t sum = 0;
      for (const int64_t ns : covered[c]) sum += ns;
      const auto most = std::max_element(covered[c].begin(), covered[c].end()) - covered[c].begin();
      out.klass[c] = static_cast<uint8_t>(most);
      out.share[c] = sum == 0 ? 0 : static_cast<uint8_t>(std::clamp<int64_t>(sum * 9 / width, 1, 9));
    }
  }

  struct Candidate {
    uint32_t rank, event;
    bool device;
    int64_t dur;
  };

  // The events of the slowest and of the median step: device events first, then the longest, as long as there is room.
  void add_slices(size_t max_slices) {
    std::vector<Candidate> candidates;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      const std::vector<Interval> windows = shown_windows(r);
      const RankTrace& trace = *ranks_[r].trace;
      for (size_t i = 0; i < trace.events.size(); ++i) {
        if (classes_[r][i] == 255 || chosen_.count({r, trace.events.lane[i]}) == 0) continue;
        const int64_t ts = trace.events.ts[i];
        if (std::any_of(windows.begin(), windows.end(),
                        [&](const Interval& w) { return ts >= w.start && ts < w.end; })) {
          candidates.push_back({r, static_cast<uint32_t>(i), classes_[r][i] != kHostClass, trace.events.dur[i]});
        }
      }
    }
    if (candidates.size() > max_slices) {
      std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(max_slices),
                       candidates.end(), [](const Candidate& a, const Candidate& b) {
                         return std::tuple(!a.device, -a.dur, a.rank, a.event) <
                                std::tuple(!b.device, -b.dur, b.rank, b.event);
                       });
      candidates.resize(max_slices);
    }
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return std::tuple(a.rank, a.event) < std::tuple(b.rank, b.event);
    });
    std::unordered_map<std::string, uint32_t> names;
    for (const Candidate& c : candidates) {
      const RankTrace& trace = *ranks_[c.rank].trace;
      const std::string& name = trace.names[trace.events.name[c.event]];
      const auto [entry, added] = names.try_emplace(name, static_cast<uint32_t>(out_.names.size()));
      if (added) out_.names.push_back(name.substr(0, 160));
      out_.slices.push_back({chosen_.at({c.rank, trace.events.lane[c.event]}), common(c.rank, trace.events.ts[c.event]),
                             c.dur, entry->second, classes_[c.rank][c.event]});
    }
  }

  std::vector<Interval> shown_windows(uint32_t rank) const {
    std::vector<Step> steps = ranks_[rank].view->steps;
    if (steps.empty()) return {{ranks_[rank].trace->first_ts, ranks_[rank].trace->last_end}};
    std::sort(steps.begin(), steps.end(),
              [](const Step& a, const Step& b) { return a.end - a.start > b.end - b.start; });
    std::vector<Interval> windows{{steps.front().start, steps.front().end}};
    if (steps.size() > 1) windows.push_back({steps[steps.size() / 2].start, steps[steps.size() / 2].end});
    return windows;
  }

  const std::vector<RankDevices>& ranks_;
  size_t columns_;
  Timeline out_;
  std::vector<std::vector<uint8_t>> classes_;
  std::map<std::pair<uint32_t, uint16_t>, uint32_t> chosen_;
};

}  // namespace

Timeline make_timeline(const std::vector<RankDevices>& ranks, size_t columns, size_t max_lanes, size_t max_slices) {
  return Painter(ranks, columns).paint(max_lanes, max_slices);
}

}  // namespace ms::profile
