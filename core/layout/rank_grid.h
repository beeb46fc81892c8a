// A rank's coordinates in the parallel layout, in Megatron's order tp-cp-ep-dp-pp with tp fastest and pp slowest
// (megatron/core/parallel_state.py, RankGenerator): rank = ((pp * DP + dp) * CP + cp) * TP + tp. With
// --use-tp-pp-dp-mapping in the order tp-cp-ep-pp-dp: rank = ((dp * PP + pp) * CP + cp) * TP + tp.
#pragma once

#include <vector>

namespace ms::layout {

struct RankGrid {
  int tp = 1, cp = 1, dp = 1, pp = 1;  // sizes
  bool pp_before_dp = false;           // order tp-cp-ep-pp-dp

  int world_size() const { return tp * cp * dp * pp; }
  struct Coordinates {
    int tp = 0, cp = 0, dp = 0, pp = 0;
  };
  Coordinates coordinates(int rank) const;
  int rank(const Coordinates& at) const;

  // World ranks, in world order, of the group that contains `rank` along the given axes; the other coordinates are
  // fixed.
  enum Axis : unsigned { kTp = 1, kCp = 2, kDp = 4, kPp = 8 };
  std::vector<int> group(int rank, unsigned axes) const;
};

}  // namespace ms::layout
