#include "core/layout/rank_grid.h"

#include <algorithm>

namespace ms::layout {

RankGrid::Coordinates RankGrid::coordinates(int rank) const {
  const int outer = rank / (tp * cp);
  return {rank % tp, rank / tp % cp, pp_before_dp ? outer / pp : outer % dp, pp_before_dp ? outer % pp : outer / dp};
}

int RankGrid::rank(const Coordinates& at) const {
  return ((pp_before_dp ? at.dp * pp + at.pp : at.pp * dp + at.dp) * cp + at.cp) * tp + at.tp;
}

std::vector<int> RankGrid::group(int of, unsigned axes) const {
  const Coordinates own = coordinates(of);
  struct Steps {
    int first, end;
  };
  // Along an axis of the group all coordinates, along the others its own: as many steps as the group has ranks.
  const auto along = [&](Axis axis, int at, int size) {
    return (axes & axis) != 0 ? Steps{0, size} : Steps{at, at + 1};
  };
  const Steps tps = along(kTp, own.tp, tp), cps = along(kCp, own.cp, cp), dps = along(kDp, own.dp, dp),
              pps = along(kPp, own.pp, pp);
  std::vector<int> ranks;
  Coordinates at;
  for (at.pp = pps.first; at.pp < pps.end; ++at.pp) {
    for (at.dp = dps.first; at.dp < dps.end; ++at.dp) {
      for (at.cp = cps.first; at.cp < cps.end; ++at.cp) {
        for (at.tp = tps.first; at.tp < tps.end; ++at.tp) ranks.push_back(rank(at));
      }
    }
  }
  std::sort(ranks.begin(), ranks.end());  // pp_before_dp has another order
  return ranks;
}

}  // namespace ms::layout
