// Spreads the slices of one lane over tracks, so that those of each track nest: viewers lose slices that overlap
// otherwise (traces.md 3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace ms::profile {

class TrackNesting {
 public:
  // The track, counted from 0, of the slice [start, end): within the shortest open one that holds it, else on a track
  // where nothing is open. To be called by start, and of those that start together the longest first. O(log tracks).
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

  std::vector<std::vector<uint64_t>> open_;    // by track: ends of what is open, the innermost last
  std::multimap<uint64_t, size_t> innermost_;  // of each track with something open: end, track
  std::set<size_t> idle_;                      // tracks with nothing open
};

}  // namespace ms::profile
