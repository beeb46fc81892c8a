// Context parallelism: the ranks of a group `cp` share each sequence. Which positions each of them has, and how its
// queries meet the keys of the others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace ms::layout {

enum class ContextAlgorithm : uint8_t {
  kUlysses,         // all-to-all: each rank has all positions of some heads (Jacobs et al. 2023)
  kKvAllgather,     // keys and values of all positions are gathered, queries stay (Llama 3, section 3.3.2)
  kRing,            // keys and values travel around (Liu et al. 2023)
  kHybrid,          // neighbours exchange heads, and what they have then travels around (Fang and Zhao 2024)
  kAdaptive,        // keys and values travel where the mask needs them (adaptive_plan.h)
  kHybridAdaptive,  // neighbours exchange heads, and what they have then travels so
};
constexpr bool is_adaptive(ContextAlgorithm algorithm) {
  return algorithm == ContextAlgorithm::kAdaptive || algorithm == ContextAlgorithm::kHybridAdaptive;
}

// Whether each of the ranks has a part from the front of a sequence and one from the back, so that a causal mask leaves
// all as many scores where queries stay. Layers of such algorithms can follow one another, and kUlysses among them.
constexpr bool is_zigzag(ContextAlgorithm algorithm) {
  return algorithm != ContextAlgorithm::kUlysses && !is_adaptive(algorithm);
}

std::string_view algorithm_name(ContextAlgorithm algorithm);  // "exchange of heads", ..

// How many ranks exchange heads, and the ring of the others: `ring` windows of `window` ranks. The product is that of
// all ranks, unless they gather keys. Neighbours exchange heads, neighbours of these are a window (RankGrid). Of
// adaptive algorithms the ring is the ranks among which keys travel.
struct ContextParts {
  int ulysses = 1, window = 1, ring = 1;
};
// ulysses_degree: of kHybrid and kHybridAdaptive, a divisor of `ranks`; window: of rings, a divisor of the rest.
ContextParts context_parts(ContextAlgorithm algorithm, int ranks, int ulysses_degree, int window);

// Which blocks of keys and values a ring keeps for its backward, beside the one that came last, so that they need not
// travel again (MindSpeed's --context-parallel-kv-cache-policy).
enum class KvCachePolicy : uint8_t { kNone, kHalf, kFull };  // kHalf: keys only
struct KvCache {
  KvCachePolicy policy = KvCachePolicy::kNone;
  int64_t interval = 0;  // layers without it between two with it

  // layer: global index.
  KvCachePolicy of_layer(int64_t layer) const { return layer % (interval + 1) == 0 ? policy : KvCachePolicy::kNone; }
};

// Positions that follow one another.
struct Segment {
  int64_t first = 0, count = 0;
};

struct AdaptivePlan;

// The positions of a sequence that a rank has, in ascending order, as its rows.
class SequenceShare {
 public:
  SequenceShare() = default;  // of a sequence of any length, all: row i is position i
  // Of `ranks` ranks, of which this is number `rank`: for kUlysses the rank-th of as many equal parts; for those that
  // are is_zigzag two of twice as many, the rank-th from the front and from the back. seq_length: a multiple of the
  // number of parts. Not of adaptive algorithms.
  SequenceShare(ContextAlgorithm algorithm, int64_t seq_length, int ranks, int rank);
  // What a plan gives; ulysses_degree neighbours divide the positions of one of its ranks, in order.
  SequenceShare(std::shared_ptr<const AdaptivePlan> plan, int rank, int ulysses_degree = 1);
  // Into how many equal parts a sequence is cut.
  static int parts(ContextAlgorithm algorithm, int ranks) {
    return ranks > 1 && is_zigzag(algorithm) ? 2 * ranks : ranks;
  }

  bool is_whole() const { return segments_.empty(); }
  // Unless it is whole.
  std::span<const Segment> segments() const { return segments_; }
  // Null without one.
  const std::shared_ptr<const AdaptivePlan>& plan() const { return plan_; }
  int64_t seq_length() const { return seq_length_; }
  // That share the sequence, each as many positions.
  int64_t ranks() const { return is_whole() ? 1 : seq_length_ / rows_before(seq_length_); }
  // How many of its rows have a position below this one.
  int64_t rows_before(int64_t position) const;

  // Calls visit(row, position, count) for the runs of rows in [begin, end) whose positions follow one another.
  template <class Visit>
  void for_each_run(int64_t begin, int64_t end, const Visit& visit) const {
    if (is_whole()) return visit(begin, begin, end - begin);
    int64_t row = 0;  // of the segment's first position
    for (const Segment& segment : segments()) {
      const int64_t first = std::max(begin, row), behind = std::min(end, row + segment.count);
      if (first < behind) visit(first, segment.first + first - row, behind - first);
      row += segment.count;
    }
  }

 private:
  std::vector<Segment> segments_;
  int64_t seq_length_ = 0;
  std::shared_ptr<const AdaptivePlan> plan_;
};

// The least power of two of ranks of which each has at most max_rows of so many positions (gpus_needed,
// megatron/core/pipeline_parallel/hybrid_cp_schedule.py). Both above 0.
int context_degree(int64_t seq_length, int64_t max_rows);

// How often an exchange of heads sends each of a rank's key and value heads: as few times as leave each of `ranks`
// ranks with whole ones.
int64_t key_copies(int64_t key_heads, int64_t ranks);

}  // namespace ms::layout
