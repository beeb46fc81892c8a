#include "train/data/degree_deal.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "core/error.h"

namespace ms::train {
namespace {

// Samples of a micro-batch: neighbours in the order of lengths.
struct Unit {
  int64_t first = 0;   // place in that order
  int64_t length = 0;  // of its longest
  double cost = 0;     // of all
};

// The degree of each round. tolerance: how often the mean of a round its first micro-batch may cost.
std::vector<int> degrees_of_rounds(std::span<const Unit> units, const DegreeSettings& settings, double tolerance) {
  const auto ranks = static_cast<size_t>(settings.dp) * static_cast<size_t>(settings.cp);
  std::vector<int> degrees;
  for (size_t first = 0; first < units.size();) {
    int degree = layout::context_degree(units[first].length, settings.max_rows);
    MS_CHECK(degree <= settings.cp, "a sample of ", units[first].length, " tokens on ", settings.cp, " ranks");
    const auto size = [&] { return ranks / static_cast<size_t>(degree); };
    while (degree < settings.cp && (units.size() - first) % size() != 0) degree *= 2;
    const auto is_uneven = [&] {
      double all = 0;
      for (size_t i = first; i < first + size(); ++i) all += units[i].cost;
      return units[first].cost * static_cast<double>(size()) > tolerance * all;
    };
    while (degree < settings.cp && is_uneven()) degree *= 2;
    degrees.push_back(degree);
    first += size();
  }
  return degrees;
}

// The number of a unit at each place; slowest: the largest cost of a rank, as a multiple of the mean.
std::vector<size_t> deal_units(std::span<const Unit> units, std::span<const int> degrees, size_t ranks,
                               double& slowest) {
  std::vector<double> loads(ranks);
  std::vector<size_t> places, groups, round;
  for (const int of_round : degrees) {
    const auto degree = static_cast<size_t>(of_round);
    const auto load = [&](size_t group) {
      const auto first = loads.begin() + static_cast<std::ptrdiff_t>(group * degree);
      return *std::max_element(first, first + of_round);
    };
    groups.resize(ranks / degree);
    round.resize(groups.size());
    std::iota(groups.begin(), groups.end(), size_t{0});
    std::iota(round.begin(), round.end(), places.size());
    std::ranges::stable_sort(groups, std::less(), load);
    std::ranges::stable_sort(round, std::greater(), [&](size_t unit) { return units[unit].cost; });
    const size_t first = places.size();
    places.resize(first + groups.size());
    for (size_t i = 0; i < groups.size(); ++i) {
      places[first + groups[i]] = round[i];
      for (size_t rank = 0; rank < degree; ++rank)
        loads[groups[i] * degree + rank] += units[round[i]].cost / static_cast<double>(degree);
    }
  }
  const double all = std::accumulate(loads.begin(), loads.end(), 0.0);
  slowest = all > 0 ? *std::ranges::max_element(loads) * static_cast<double>(ranks) / all : 1;
  return places;
}

}  // namespace

DegreeDeal deal_by_degree(std::span<const int64_t> lengths, std::span<const double> costs,
                          const DegreeSettings& settings) {
  const int64_t size = settings.micro_batch_size;
  MS_CHECK(settings.dp > 0 && size > 0 && std::has_single_bit(static_cast<unsigned>(settings.cp)) &&
               lengths.size() == costs.size() && static_cast<int64_t>(costs.size()) % (settings.dp * size) == 0,
           costs.size(), " samples for ", settings.dp, " x ", settings.cp, " ranks with ", size, " in a micro-batch");
  std::vector<int64_t> by_length(costs.size());
  std::iota(by_length.begin(), by_length.end(), int64_t{0});
  std::ranges::stable_sort(by_length, std::greater(), [&](int64_t i) {
    return std::tuple(lengths[static_cast<size_t>(i)], costs[static_cast<size_t>(i)]);
  });
  std::vector<Unit> units;
  for (int64_t first = 0; first < static_cast<int64_t>(by_length.size()); first += size) {
    Unit& unit = units.emplace_back(Unit{.first = first});
    unit.length = lengths[static_cast<size_t>(by_length[static_cast<size_t>(first)])];
    for (int64_t i = 0; i < size; ++i)
      unit.cost += costs[static_cast<size_t>(by_length[static_cast<size_t>(first + i)])];
  }

  constexpr double kEven = 1.1, kTolerances[] = {std::numeric_limits<double>::infinity(), 4, 2, 1.5, 1.25, 1.1};
  const auto ranks = static_cast<size_t>(settings.dp) * static_cast<size_t>(settings.cp);
  DegreeDeal deal;
  std::vector<size_t> places;
  deal.cost.slowest = std::numeric_limits<double>::infinity();
  for (const double tolerance : kTolerances) {
    std::vector<int> degrees = degrees_of_rounds(units, settings, tolerance);
    double slowest = 1;
    std::vector<size_t> found = deal_units(units, degrees, ranks, slowest);
    if (slowest < deal.cost.slowest) deal.cost.slowest = slowest, deal.degrees.swap(degrees), places.swap(found);
    if (deal.cost.slowest < kEven) break;
  }
  for (const size_t unit : places) {
    const auto first = by_length.begin() + units[unit].first;
    deal.order.insert(deal.order.end(), first, first + size);
  }
  for (const int degree : deal.degrees) ++deal.cost.rounds.at(std::countr_zero(static_cast<unsigned>(degree)));
  deal.cost.slowest_in_order = slowest_rank(costs, {}, settings.dp, size);
  return deal;
}

void choose_samples(const DegreeDeal& deal, const DegreeSettings& settings, int64_t consumed_samples, int rank,
                    std::vector<Microbatch>& batch) {
  batch.resize(deal.degrees.size());
  const int64_t ranks = int64_t{settings.dp} * settings.cp, size = settings.micro_batch_size;
  int64_t first = 0;  // of the round
  for (size_t round = 0; round < batch.size(); ++round) {
    const int degree = deal.degrees[round];
    std::vector<int64_t>& samples = batch[round].samples;
    samples.clear();
    for (int64_t i = 0; i < size; ++i) {
      const int64_t place = first + rank / degree * size + i;
      samples.push_back(consumed_samples + deal.order[static_cast<size_t>(place)]);
    }
    first += ranks / degree * size;
  }
}

}  // namespace ms::train
