// Where a rank stands in the parallel layout: Megatron's order tp-cp-ep-dp-pp, tp fastest, pp slowest
// (megatron/core/parallel_state.py, RankGenerator): rank = ((pp * DP + dp) * CP + cp) * TP + tp.
#pragma once

#include <vector>

namespace ms::core {

struct RankGrid {
  int tp = 1, cp = 1, dp = 1, pp = 1;  // sizes

  int world_size() const { return tp * cp * dp * pp; }
  struct Coordinates {
    int tp = 0, cp = 0, dp = 0, pp = 0;
  };
  Coordinates coordinates(int rank) const;
  int rank(const Coordinates& at) const;

  // World ranks of the group of `rank` along the named axes, in world order: the other coordinates stay.
  enum Axis : unsigned { kTp = 1, kCp = 2, kDp = 4, kPp = 8 };
  std::vector<int> group(int rank, unsigned axes) const;
};

}  // namespace ms::core
