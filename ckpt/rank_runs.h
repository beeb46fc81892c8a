// Run-length encoded ranks: which rank holds each shard of a list that is ordered by rank, in a few bytes per rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ms::ckpt {

// Behaves as a vector of ranks. Compact if most elements equal the previous one.
class RankRuns {
 public:
  void push_back(int32_t rank) {
    if (runs_.empty() || runs_.back().rank != rank) runs_.push_back({size(), rank});
    ++runs_.back().end;
  }
  size_t size() const { return runs_.empty() ? 0 : runs_.back().end; }
  bool empty() const { return runs_.empty(); }
  int32_t back() const { return runs_.back().rank; }
  // O(log ranks).
  int32_t operator[](size_t shard) const {
    const auto after = [](size_t index, const Run& run) { return index < run.end; };
    return std::upper_bound(runs_.begin(), runs_.end(), shard, after)->rank;
  }

 private:
  struct Run {
    size_t end = 0;  // index after its last shard
    int32_t rank = 0;
  };
  std::vector<Run> runs_;
};

}  // namespace ms::ckpt
