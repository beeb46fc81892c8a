#include "core/layout/rank_grid.h"

namespace ms::layout {

RankGrid::Coordinates RankGrid::coordinates(int rank) const {
  const int outer = rank / (tp * cp);
  return {rank % tp, rank / tp % cp, pp_before_dp ? outer / pp : outer % dp, pp_before_dp ? outer % pp : outer / dp};
}

int RankGrid::rank(const Coordinates& at) const {
  return ((pp_before_dp ? at.dp * pp + at.pp : at.pp * dp + at.dp) * cp + at.cp) * tp + at.tp;
}

std::vector<int> RankGrid::group(int rank, unsigned axes) const {
  const Coordinates own = coordinates(rank);
  std::vector<int> ranks;
  for (int other = 0; other < world_size(); ++other) {
    const Coordinates at = coordinates(other);
    if ((at.tp == own.tp || (axes & kTp) != 0) && (at.cp == own.cp || (axes & kCp) != 0) &&
        (at.dp == own.dp || (axes & kDp) != 0) && (at.pp == own.pp || (axes & kPp) != 0)) {
      ranks.push_back(other);
    }
  }
  return ranks;
}

}  // namespace ms::layout
