// A mask on a coarse grid: which cells of queries and keys have a visible score. Adaptive context parallelism plans
// with it (adaptive_plan.h), so that no array has a bit for each score.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::layout {

class CoarseMask {
 public:
  // Nothing is visible. cells: of a sequence, each of as many positions: a divisor of seq_length.
  CoarseMask(int64_t seq_length, int64_t cells);
  // Of packed samples: a position sees those of its document up to its own, in any of the samples. document_ends: as
  // ops::AttentionParams has them, of samples of seq_length one behind the other; empty: samples are documents.
  CoarseMask(int64_t seq_length, int64_t cells, std::span<const int64_t> document_ends);

  int64_t seq_length() const { return seq_length_; }
  int64_t cells() const { return cells_; }
  int64_t positions() const { return seq_length_ / cells_; }  // of a cell
  bool sees(int64_t query, int64_t key) const { return seen_[index(query, key)] != 0; }
  void show(int64_t query, int64_t key) { seen_[index(query, key)] = 1; }
  // To every query the keys of the first `prefix` positions.
  void show_prefix(int64_t prefix);

 private:
  size_t index(int64_t query, int64_t key) const { return static_cast<size_t>(query * cells_ + key); }

  int64_t seq_length_, cells_;
  std::vector<uint8_t> seen_;  // [cells, cells], of queries and keys
};

inline constexpr int64_t kMaxCoarseCells = 1024;

// How many cells a grid for so many ranks has: as many as there are up to kMaxCoarseCells, of which each rank can have
// its equal part. seq_length: a multiple of `ranks`.
int64_t coarse_cells(int64_t seq_length, int64_t ranks);

}  // namespace ms::layout
