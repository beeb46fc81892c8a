// Distributes the slices of a lane over tracks so that the slices of each track nest. Viewers such as Perfetto drop
// slices that overlap without nesting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace ms::profile {

class TrackNesting {
 public:
  // The track, from 0, for the slice [start, end): the one whose innermost open slice is the shortest that contains it,
  // else a track without open slices. Call by start; of slices that start together, the longest first. O(log tracks).
  size_t place(uint64_t start, uint64_t end) {
    close_until(start);
    size_t track = open_.size();
    if (const auto around = innermost_.lower_bound(end); around != innermost_.end()) {
      track = around->second;
      innermost_.erase(around);
    } else if (!idle_.empty()) {
      track = *idle_.begin();
      idle_.erase(idle_.begin());
    } else {
      open_.emplace_back();
    }
    open_[track].push_back(end);
    innermost_.emplace(end, track);
    return track;
  }

 private:
  void close_until(uint64_t time) {
    while (!innermost_.empty() && innermost_.begin()->first <= time) {
      const size_t track = innermost_.begin()->second;
      innermost_.erase(innermost_.begin());
      std::vector<uint64_t>& ends = open_[track];
      while (!ends.empty() && ends.back() <= time) ends.pop_back();
      if (ends.empty()) {
        idle_.insert(track);
      } else {
        innermost_.emplace(ends.back(), track);
      }
    }
  }

  std::vector<std::vector<uint64_t>> open_;    // by track: ends of open slices, innermost last
  std::multimap<uint64_t, size_t> innermost_;  // end of the innermost open slice, track
  std::set<size_t> idle_;                      // tracks without open slices
};

}  // namespace ms::profile
