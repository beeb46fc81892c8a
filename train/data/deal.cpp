#include "train/data/deal.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "core/error.h"

namespace ms::train {

double slowest_rank(std::span<const double> costs, std::span<const int64_t> order, int ranks,
                    int64_t micro_batch_size) {
  std::vector<double> sums(static_cast<size_t>(ranks));
  double all = 0;
  for (size_t place = 0; place < costs.size(); ++place) {
    const double cost = costs[order.empty() ? place : static_cast<size_t>(order[place])];
    sums[place / static_cast<size_t>(micro_batch_size) % sums.size()] += cost;
    all += cost;
  }
  return all > 0 ? *std::ranges::max_element(sums) * ranks / all : 1;
}

Deal deal_by_cost(std::span<const double> costs, int ranks, int64_t micro_batch_size) {
  const auto of_rank = static_cast<size_t>(micro_batch_size), round = static_cast<size_t>(ranks) * of_rank;
  MS_CHECK(round > 0 && costs.size() % round == 0, costs.size(), " samples for ", ranks, " ranks with ",
           micro_batch_size, " in a micro-batch");
  std::vector<int64_t> by_cost(costs.size());
  std::iota(by_cost.begin(), by_cost.end(), int64_t{0});
  std::ranges::stable_sort(by_cost, std::greater(), [&](int64_t i) { return costs[static_cast<size_t>(i)]; });

  using Load = std::pair<double, size_t>;  // of a rank; of equal ones the first
  std::vector<Load> loads;
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) loads.emplace_back(0.0, rank);
  Deal deal;
  deal.order.resize(costs.size());
  std::vector<size_t> taken(loads.size());
  for (size_t first = 0; first < costs.size(); first += round) {
    std::ranges::fill(taken, size_t{0});
    std::priority_queue<Load, std::vector<Load>, std::greater<>> least(loads.begin(), loads.end());
    for (size_t i = first; i < first + round; ++i) {
      const size_t rank = least.top().second;
      least.pop();
      deal.order[first + rank * of_rank + taken[rank]++] = by_cost[i];
      loads[rank].first += costs[static_cast<size_t>(by_cost[i])];
      if (taken[rank] < of_rank) least.push(loads[rank]);
    }
  }
  deal.cost = {.slowest = slowest_rank(costs, deal.order, ranks, micro_batch_size),
               .slowest_in_order = slowest_rank(costs, {}, ranks, micro_batch_size)};
  if (deal.cost.slowest < deal.cost.slowest_in_order) return deal;
  std::iota(deal.order.begin(), deal.order.end(), int64_t{0});
  deal.cost.slowest = deal.cost.slowest_in_order;
  return deal;
}

}  // namespace ms::train
