// What each rank of a group has of a buffer: one range of elements, or several.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace ms::core::detail {

struct Range {
  int64_t begin = 0, count = 0;  // elements
  int64_t end() const { return begin + count; }
};

class Blocks {
 public:
  // ranges: of rank 0, of rank 1, ..; as many of each rank.
  explicit Blocks(std::vector<Range> ranges, int ranges_per_rank = 1)
      : ranges_(std::move(ranges)), ranges_per_rank_(ranges_per_rank) {}
  // One range of counts[r] elements for each rank, one behind the other.
  static Blocks in_order(const std::vector<int64_t>& counts) {
    std::vector<Range> ranges;
    int64_t begin = 0;
    for (const int64_t count : counts) {
      ranges.push_back({begin, count});
      begin += count;
    }
    return Blocks(std::move(ranges));
  }
  // `count` elements cut evenly, or nearly so.
  static Blocks even(int64_t count, int ranks) {
    std::vector<int64_t> counts;
    for (int r = 0; r < ranks; ++r) counts.push_back(count * (r + 1) / ranks - count * r / ranks);
    return in_order(counts);
  }
  // Of each rank so many ranges of `count` elements, one behind the other (BlockOrder::kByRank).
  static Blocks by_rank(int64_t count, int ranks, int ranges_per_rank) {
    std::vector<Range> ranges;
    for (int64_t i = 0; i < int64_t{ranks} * ranges_per_rank; ++i) ranges.push_back({i * count, count});
    return Blocks(std::move(ranges), ranges_per_rank);
  }
  // Of each rank two, one from the front and one from the back (BlockOrder::kFrontBack).
  static Blocks front_back(int64_t count, int ranks) {
    std::vector<Range> ranges;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      ranges.push_back({rank * count, count});
      ranges.push_back({(2 * ranks - 1 - rank) * count, count});
    }
    return Blocks(std::move(ranges), 2);
  }

  int ranges_per_rank() const { return ranges_per_rank_; }
  const Range& range(int rank, int i = 0) const { return ranges_[static_cast<size_t>(rank * ranges_per_rank_ + i)]; }
  // Of all ranges of a rank.
  int64_t elements(int rank) const {
    int64_t sum = 0;
    for (int i = 0; i < ranges_per_rank_; ++i) sum += range(rank, i).count;
    return sum;
  }
  // Of the longest range.
  int64_t longest() const {
    int64_t most = 0;
    for (const Range& range : ranges_) most = std::max(most, range.count);
    return most;
  }

  // Every rank's ranges in chunks of at most so many elements: chunk i of each rank is moved, or reduced, at a time.
  int64_t chunks(int64_t elems) const { return ranges_per_rank_ * chunks_of_range(elems); }
  Range chunk(int rank, int64_t i, int64_t elems) const {  // may be empty
    const int64_t in_range = chunks_of_range(elems);
    const Range& whole = range(rank, static_cast<int>(i / in_range));
    const int64_t before = std::min(i % in_range * elems, whole.count);
    return {whole.begin + before, std::min(elems, whole.count - before)};
  }

 private:
  int64_t chunks_of_range(int64_t elems) const { return (longest() + elems - 1) / elems; }
  std::vector<Range> ranges_;
  int ranges_per_rank_;
};

}  // namespace ms::core::detail
