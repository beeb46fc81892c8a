// Chooses the ranks that a report shows in full if it has no room for all.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "profile/analysis/results.h"

namespace ms::profile {

struct ShownRank {
  size_t index = 0;  // of Results::ranks
  int rank = 0;
  std::string reason;  // "finding 1", "slow rank", "computes longest", ..; empty: none
};

// At most max_ranks, the most important first: ranks named by findings, slow ranks, those that compute longest, least
// and the median, the first rank; then those that others waited for longest; then by number.
std::vector<ShownRank> choose_ranks(const Results& results, size_t max_ranks);

}  // namespace ms::profile
