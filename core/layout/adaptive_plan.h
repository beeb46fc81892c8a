// Adaptive context parallelism (MindSpeed's adaptive_cp_algo): ranks have those positions of a sequence that leave as
// few blocks of scores between them as a search finds, and keys and values go only where a score needs them, in rounds.
//
// Planning is pure: all ranks that share a sequence compute the same plan from its mask. "Ranks" are those among which
// keys travel; where neighbours exchange heads (hybrid_adaptive_cp_algo), all of them are one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/layout/coarse_mask.h"
#include "core/layout/context_parallel.h"
#include "core/layout/mask_grid.h"

namespace ms::layout {

// Keys and values of one rank on their way to another.
struct BlockTransfer {
  int from = 0, to = 0;
};

struct AdaptivePlan {
  int64_t seq_length = 0;
  // The positions of each rank, in ascending order; all have as many.
  std::vector<std::vector<Segment>> segments;
  // Each rank attends its own block first. The blocks of rounds[i] travel while those of rounds[i - 1] are attended; in
  // a round a rank receives one at most, and sends two.
  std::vector<std::vector<BlockTransfer>> rounds;

  int ranks() const { return static_cast<int>(segments.size()); }
  int64_t transfers() const;
  int64_t sent_by(int rank) const;
  int64_t received_by(int rank) const;
};

// Which order of positions is dealt to the ranks: that of the sequence, or of clusters of the mask where these leave
// fewer blocks between ranks.
enum class PositionOrder : uint8_t { kOfSequence, kOfClusters };

// In any order, the numbers of other ranks that each rank has a block with sum to this at least: a cell and those that
// it sees, or that see it, take so many ranks. Where the order of the sequence has no more blocks than half of it, no
// other one is better, and plan_blocks does not search.
int64_t least_neighbours(const CoarseMask& mask, int ranks);

// Orders compare by the blocks that travel, and those that are equal by how evenly rows and columns have them. Each
// block with a visible score is attended by the rank of its queries, once. Rounds are as few as these limits allow
// (edge colouring of a bipartite graph, Koenig 1916). mask.cells(): a multiple of `ranks`.
AdaptivePlan plan_blocks(const CoarseMask& mask, int ranks, PositionOrder order);

// Of packed samples (CoarseMask). Without documents there is nothing to search: positions stay in their order. prefix:
// positions that see each other, where samples are not packed. Of any two ranks one needs keys of the other then, and
// both do if both have positions of the prefix: no order leaves fewer blocks than that of the sequence.
std::shared_ptr<const AdaptivePlan> plan_documents(int64_t seq_length, int ranks,
                                                   std::span<const int64_t> document_ends, PositionOrder order,
                                                   int64_t prefix = 0);

// Of samples with a grid. Cells of the plan are as few as divide into those of the grid and those of the ranks, or else
// coarse_cells().
std::shared_ptr<const AdaptivePlan> plan_grid(const MaskGrid& grid, int ranks, PositionOrder order);

}  // namespace ms::layout
