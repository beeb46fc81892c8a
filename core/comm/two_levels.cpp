#include "core/comm/two_levels.h"

#include <algorithm>

namespace ms::core {

std::optional<TwoLevels> two_levels_of(std::span<const int> machines, int own) {
  TwoLevels levels;
  std::vector<int> seen;
  for (size_t i = 0; i < machines.size(); ++i) {
    const auto found = std::ranges::find(seen, machines[i]);
    const auto machine = static_cast<size_t>(found - seen.begin());
    if (found == seen.end()) {
      seen.push_back(machines[i]);
      levels.at.emplace_back();
    }
    levels.at[machine].push_back(static_cast<int>(i));
  }
  const size_t places = levels.at.empty() ? 0 : levels.at.front().size();
  const bool even = std::ranges::all_of(levels.at, [&](const auto& ranks) { return ranks.size() == places; });
  if (levels.at.size() < 2 || places < 2 || !even) return std::nullopt;
  for (const std::vector<int>& ranks : levels.at) {
    const auto found = std::ranges::find(ranks, own);
    if (found == ranks.end()) continue;
    levels.within = ranks;
    for (const std::vector<int>& others : levels.at)
      levels.across.push_back(others[static_cast<size_t>(found - ranks.begin())]);
  }
  return levels;
}

}  // namespace ms::core
