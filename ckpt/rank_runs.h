// Which rank holds each shard of a list that goes rank by rank: a few bytes for each rank, not for each shard.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ms::ckpt {

// As a vector of ranks, where most are equal to the one before.
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
    size_t end = 0;  // index behind its last shard
    int32_t rank = 0;
  };
  std::vector<Run> runs_;
};

}  // namespace ms::ckpt
