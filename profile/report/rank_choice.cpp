#include "profile/report/rank_choice.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "profile/analysis/cross_rank.h"

namespace ms::profile {

std::vector<ShownRank> choose_ranks(const Results& results, size_t max_ranks) {
  std::map<int, size_t> index;
  for (size_t i = 0; i < results.ranks.size(); ++i) index.emplace(results.ranks[i].rank, i);
  std::vector<ShownRank> out;
  std::set<int> taken;
  const auto take = [&](int rank, const std::string& reason) {
    const auto found = index.find(rank);
    if (found == index.end() || out.size() >= max_ranks || !taken.insert(rank).second) return;
    out.push_back({found->second, rank, reason});
  };
  const auto& findings = results.at<Findings>();
  if (results.ranks.size() > 1) {
    for (size_t i = 0; i < findings.size(); ++i) take(findings[i].worst_rank, core::cat("finding ", i + 1));
    for (const SlowRank& slow : results.at<CrossRank>().slow_ranks) take(slow.rank, "slow rank");
    auto computing = results.at<Imbalance>().computing_ns;
    std::stable_sort(computing.begin(), computing.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    if (!computing.empty()) {
      take(computing.front().first, "computes longest");
      take(computing.back().first, "computes least");
      take(computing[computing.size() / 2].first, "median of computing");
    }
    take(results.ranks.front().rank, "");
    std::vector<std::pair<int64_t, int>> blamed;
    for (const auto& [rank, waits] : results.at<CrossRank>().by_rank) blamed.emplace_back(-waits.blame, rank);
    std::sort(blamed.begin(), blamed.end());
    for (const auto& [blame, rank] : blamed) {
      if (blame < 0) take(rank, "others waited for it");
    }
  }
  for (const RankResults& rank : results.ranks) take(rank.rank, "");
  return out;
}

}  // namespace ms::profile
