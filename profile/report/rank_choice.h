// Which ranks a page shows in full where it has no room for all of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "profile/analysis/results.h"

namespace ms::profile {

struct ShownRank {
  size_t index = 0;  // of Results::ranks
  int rank = 0;
  std::string reason;  // "finding 1", "slow rank", "computes longest", ...; empty: nothing sets it apart
};

// At most max_ranks, the most important first: ranks that findings name, slow ranks, those that compute longest, least
// and the median, the first; then those that others waited for longest, then by number.
std::vector<ShownRank> choose_ranks(const Results& results, size_t max_ranks);

}  // namespace ms::profile
