// Masks that are the same for every sample: a prefix, or a grid of cells of queries and keys. No array has a number for
// each score: of a grid there are cells squared, and lists of runs of keys that kernels take (kernels/attention.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/layout/coarse_mask.h"
#include "core/layout/context_parallel.h"
#include "kernels/attention.h"

namespace ms::layout {

// Lists of the keys that queries see, with their memory.
struct RunLists {
  std::vector<kernels::QuerySpan> spans;
  std::vector<kernels::KeyRun> runs;
  bool is_causal = false;

  bool sees_any() const { return !runs.empty(); }
  kernels::VisibleRuns view() const {
    return {spans.data(), runs.data(), static_cast<int64_t>(spans.size()), is_causal};
  }
};

class MaskGrid {
 public:
  // is_causal: of the keys of a visible cell a query sees those up to its own position. seq_length below 2^31.
  MaskGrid(CoarseMask visible, bool is_causal);

  int64_t seq_length() const { return visible_.seq_length(); }
  int64_t cells() const { return visible_.cells(); }
  bool is_causal() const { return is_causal_; }
  // Positions.
  bool sees(int64_t query, int64_t key) const {
    const int64_t of_cell = visible_.positions();
    return visible_.sees(query / of_cell, key / of_cell) && (!is_causal_ || key <= query);
  }
  // Positions of the keys that a cell of queries sees, as few runs as there are; if it is causal, none behind the cell.
  std::span<const Segment> keys_of(int64_t cell) const {
    const auto at = static_cast<size_t>(cell);
    return std::span(keys_).subspan(ends_[at], ends_[at + 1] - ends_[at]);
  }
  // The first position that sees no key.
  std::optional<int64_t> blind_query() const;
  // Twice the visible scores of queries [first, first + count) with all keys; if it is causal, of a query's own key
  // once, as attention counts FLOPs.
  int64_t visible_scores(int64_t first, int64_t count) const;
  // Pairs of a query and a key that it sees.
  int64_t visible_pairs() const;
  // Positions whose loss counts: they do not see the next one, whose token they predict. The last one is among them.
  int64_t positions_with_loss() const;
  // On a grid of so many cells, a divisor of seq_length: cells with a visible score.
  CoarseMask coarse(int64_t cells) const;
  // Lists for attention of whole sequences.
  const RunLists& whole() const { return whole_; }
  // Of cells and kind, for comparisons.
  uint64_t fingerprint() const;

 private:
  CoarseMask visible_;
  bool is_causal_;
  std::vector<Segment> keys_;  // of all cells
  std::vector<size_t> ends_;   // [cells + 1], in keys_
  RunLists whole_;
};

// What rows [rows.first, rows.first + rows.count) of `queries`, counted from the first of them, see of the first
// num_keys rows of `keys`. Spans and runs are as long as they can be: those of a grid of ones are those of a causal
// mask. Time is that of the runs, and of cells that have rows.
RunLists grid_runs(const MaskGrid& grid, const SequenceShare& queries, Segment rows, const SequenceShare& keys,
                   int64_t num_keys);

struct AdaptivePlan;

// What positions of a sample see besides the keys before them, or in their place.
struct SampleMask {
  int64_t prefix = 0;                        // positions that all see; 0: none
  std::shared_ptr<const MaskGrid> grid;      // null: none
  std::shared_ptr<const AdaptivePlan> plan;  // of adaptive algorithms with a grid (plan_grid)
};

}  // namespace ms::layout
