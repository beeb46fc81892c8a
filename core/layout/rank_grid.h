// The coordinates of ranks in a parallel layout. Axes, their parts and their order are data: a rank is a number of
// which each part of an axis is a digit (megatron/core/parallel_state.py, RankGenerator).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::layout {

enum class Axis : uint8_t { kTp, kCp, kEp, kDp, kPp };
inline constexpr int kNumAxes = 5;

// From the fastest axis to the slowest. Experts have a grid of their own over the ranks of a stage, so that the place
// of kEp orders nothing here; Megatron's names have it.
using AxisOrder = std::array<Axis, kNumAxes>;
inline constexpr AxisOrder kTpCpEpDpPp = {Axis::kTp, Axis::kCp, Axis::kEp, Axis::kDp, Axis::kPp};
inline constexpr AxisOrder kTpCpEpPpDp = {Axis::kTp, Axis::kCp, Axis::kEp, Axis::kPp,
                                          Axis::kDp};  // --use-tp-pp-dp-mapping
std::string order_name(const AxisOrder& order);        // "tp-cp-ep-dp-pp"
// nullopt unless each axis occurs once.
std::optional<AxisOrder> parse_order(std::string_view name);

struct RankGrid {
  int tp = 1, cp = 1, dp = 1, pp = 1;  // sizes
  AxisOrder order = kTpCpEpDpPp;
  // Axes that are split, each into a product of parts, the first of which is the fastest; 1: not split. Each size of an
  // axis is a multiple of those of its other parts.
  //   tp = x * tp_y                       2D tensor parallelism (MindSpeed's --tp-x, --tp-y)
  //   cp = ulysses * cp_window * cp_ring  Ulysses within runs of ranks, windows of a double ring
  //   dp = shard * dp_replica             hsdp (Megatron's --num-distributed-optimizer-instances), the experts' dp, too
  int tp_y = 1, cp_window = 1, cp_ring = 1, dp_replica = 1;
  // The grid of the experts: the ranks of a stage in world order, numbered etp fastest, then ep, then the expert
  // data-parallel ranks (Megatron's expert_decoder_rank_generator).
  int etp = 1, ep = 1;
  // Neighbours among the tp ranks that share a query group, where there are fewer groups than ranks
  // (train/parallel/query_groups.h).
  int query_parts = 1;
  // Whether groups of 2, 4, .. neighbours among the cp ranks share samples that need no more of them; cp is a power of
  // two then (Megatron's hybrid dp-cp groups, create_hybrid_dp_cp_groups).
  bool chooses_cp = false;

  int world_size() const { return tp * cp * dp * pp; }
  struct Coordinates {
    int tp = 0, cp = 0, dp = 0, pp = 0;
  };
  Coordinates coordinates(int rank) const;
  int rank(const Coordinates& at) const;

  // Ranks that hold the same weights: dp x cp. Their number among these is that in the group of both axes.
  int replicas() const { return dp * cp; }
  int replica(const Coordinates& at) const;

  int expert_dp() const { return tp * cp * dp / (etp * ep); }
  int expert_dp_shard() const { return expert_dp() / dp_replica; }  // of an instance; dp_replica divides expert_dp
  struct ExpertCoordinates {
    int etp = 0, ep = 0, expert_dp = 0;
  };
  ExpertCoordinates expert_coordinates(int rank) const;

  // Parts of axes, and axes as their unions; axes of the experts' grid.
  enum Part : unsigned {
    kTpX = 1,
    kTpY = 2,
    kUlysses = 4,
    kCpWindow = 8,
    kCpRing = 16,
    kDpShard = 32,
    kDpReplica = 64,
    kPp = 128,
    kTp = kTpX | kTpY,
    kCp = kUlysses | kCpWindow | kCpRing,
    kDp = kDpShard | kDpReplica,
    kEtp = 256,
    kEp = 512,
    kExpertDpShard = 1024,
    kExpertDpReplica = 2048,
    kExpertDp = kExpertDpShard | kExpertDpReplica,
  };
  // World ranks, in world order, of the group that contains `rank` along these parts; its other digits are fixed. Parts
  // are of one grid.
  std::vector<int> group(int rank, unsigned parts) const;

 private:
  std::vector<int> expert_group(int rank, unsigned axes) const;
};

// "TP 2 x CP 2 x DP 4 x PP 1"; without CP where that is 1.
std::string sizes_text(const RankGrid& grid);

}  // namespace ms::layout
