// Sets of time for the analyses: unions of half-open intervals [start, end), exact in int64 nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace ms::profile {

struct Interval {
  int64_t start = 0, end = 0;
  bool operator==(const Interval&) const = default;
};

// A set of instants: sorted, disjoint, non-empty intervals that do not touch.
class IntervalSet {
 public:
  IntervalSet() = default;
  // The union of any intervals, in any order; empty ones are dropped. O(n log n), O(n) if sorted by start.
  explicit IntervalSet(std::vector<Interval> intervals) : intervals_(std::move(intervals)) {
    const auto by_start = [](const Interval& a, const Interval& b) { return a.start < b.start; };
    if (!std::is_sorted(intervals_.begin(), intervals_.end(), by_start)) {
      std::sort(intervals_.begin(), intervals_.end(), by_start);
    }
    size_t kept = 0;
    for (const Interval& next : intervals_) {
      if (next.end <= next.start) continue;
      if (kept > 0 && next.start <= intervals_[kept - 1].end) {
        intervals_[kept - 1].end = std::max(intervals_[kept - 1].end, next.end);
      } else {
        intervals_[kept++] = next;
      }
    }
    intervals_.resize(kept);
  }

  const std::vector<Interval>& intervals() const { return intervals_; }
  bool empty() const { return intervals_.empty(); }
  int64_t length() const {
    int64_t sum = 0;
    for (const Interval& interval : intervals_) sum += interval.end - interval.start;
    return sum;
  }

  // Length of the part within `range`. O(log n + intervals in it).
  int64_t length_within(const Interval& range) const {
    auto at = std::upper_bound(intervals_.begin(), intervals_.end(), range.start,
                               [](int64_t start, const Interval& interval) { return start < interval.end; });
    int64_t sum = 0;
    for (; at != intervals_.end() && at->start < range.end; ++at) {
      sum += std::min(at->end, range.end) - std::max(at->start, range.start);
    }
    return sum;
  }

  friend IntervalSet unite(const IntervalSet& a, const IntervalSet& b) {
    std::vector<Interval> all(a.intervals_.size() + b.intervals_.size());
    std::merge(a.intervals_.begin(), a.intervals_.end(), b.intervals_.begin(), b.intervals_.end(), all.begin(),
               [](const Interval& x, const Interval& y) { return x.start < y.start; });
    return IntervalSet(std::move(all));
  }

  friend IntervalSet intersect(const IntervalSet& a, const IntervalSet& b) {
    IntervalSet out;
    for (size_t i = 0, j = 0; i < a.intervals_.size() && j < b.intervals_.size();) {
      const Interval &x = a.intervals_[i], &y = b.intervals_[j];
      const Interval common{std::max(x.start, y.start), std::min(x.end, y.end)};
      if (common.start < common.end) out.intervals_.push_back(common);
      (x.end < y.end ? i : j) += 1;
    }
    return out;
  }

  // a \ b.
  friend IntervalSet subtract(IntervalSet a, const IntervalSet& b) {
    if (b.empty()) return a;
    IntervalSet out;
    size_t j = 0;
    for (Interval rest : a.intervals_) {
      while (j < b.intervals_.size() && b.intervals_[j].end <= rest.start) ++j;
      for (size_t k = j; k < b.intervals_.size() && b.intervals_[k].start < rest.end; ++k) {
        if (b.intervals_[k].start > rest.start) out.intervals_.push_back({rest.start, b.intervals_[k].start});
        rest.start = std::max(rest.start, b.intervals_[k].end);
      }
      if (rest.start < rest.end) out.intervals_.push_back(rest);
    }
    return out;
  }

 private:
  std::vector<Interval> intervals_;
};

}  // namespace ms::profile
