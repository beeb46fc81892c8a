#include "core/layout/expert_packing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/error.h"

namespace ms::layout {
namespace {

// The number of the group of each expert, groups in the order in which they are filled.
std::vector<int> pack_into_groups(std::span<const double> load, int groups) {
  const size_t each = load.size() / static_cast<size_t>(groups);
  std::vector<int32_t> order(load.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](int32_t expert) { return load[static_cast<size_t>(expert)]; });
  std::vector<int> group_of(load.size());
  std::vector<double> sums(static_cast<size_t>(groups));
  std::vector<size_t> sizes(sums.size());
  for (const int32_t expert : order) {
    size_t best = sums.size();
    for (size_t group = 0; group < sums.size(); ++group) {
      if (sizes[group] < each && (best == sums.size() || sums[group] < sums[best])) best = group;
    }
    group_of[static_cast<size_t>(expert)] = static_cast<int>(best);
    sums[best] += load[static_cast<size_t>(expert)];
    ++sizes[best];
  }
  return group_of;
}

// The rank of each group: pairs of them by how many experts stay, the most first.
std::vector<int> ranks_of_groups(std::span<const int> group_of, std::span<const int32_t> now, int ranks) {
  struct Pair {
    int group, rank, stay;
  };
  const size_t each = now.size() / static_cast<size_t>(ranks);
  std::vector<Pair> pairs;
  for (int group = 0; group < ranks; ++group) {
    for (int rank = 0; rank < ranks; ++rank) pairs.push_back({group, rank, 0});
  }
  for (size_t expert = 0; expert < now.size(); ++expert) {
    const size_t rank = static_cast<size_t>(now[expert]) / each;
    ++pairs[static_cast<size_t>(group_of[expert] * ranks) + rank].stay;
  }
  std::ranges::stable_sort(pairs, std::greater(), &Pair::stay);
  std::vector<int> rank_of(static_cast<size_t>(ranks), -1);
  std::vector<bool> is_taken(static_cast<size_t>(ranks));
  for (const Pair& pair : pairs) {
    if (rank_of[static_cast<size_t>(pair.group)] >= 0 || is_taken[static_cast<size_t>(pair.rank)]) continue;
    rank_of[static_cast<size_t>(pair.group)] = pair.rank;
    is_taken[static_cast<size_t>(pair.rank)] = true;
  }
  return rank_of;
}

void check_slots(std::span<const double> load, std::span<const int32_t> slots, int ranks) {
  MS_CHECK(load.size() == slots.size() && ranks > 0 && slots.size() % static_cast<size_t>(ranks) == 0, load.size(),
           " loads of ", slots.size(), " experts on ", ranks, " ranks");
}

}  // namespace

ExpertSlots slots_in_order(int64_t num_experts) {
  ExpertSlots slots(static_cast<size_t>(num_experts));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

bool is_permutation(std::span<const int32_t> slots) {
  std::vector<bool> seen(slots.size());
  for (const int32_t slot : slots) {
    if (slot < 0 || static_cast<size_t>(slot) >= slots.size() || seen[static_cast<size_t>(slot)]) return false;
    seen[static_cast<size_t>(slot)] = true;
  }
  return true;
}

std::vector<int32_t> experts_of_slots(std::span<const int32_t> slots) {
  std::vector<int32_t> experts(slots.size());
  for (size_t expert = 0; expert < slots.size(); ++expert)
    experts[static_cast<size_t>(slots[expert])] = static_cast<int32_t>(expert);
  return experts;
}

std::vector<double> load_of_ranks(std::span<const double> load, std::span<const int32_t> slots, int ranks) {
  check_slots(load, slots, ranks);
  const size_t each = slots.size() / static_cast<size_t>(ranks);
  std::vector<double> of_ranks(static_cast<size_t>(ranks));
  for (size_t expert = 0; expert < load.size(); ++expert)
    of_ranks[static_cast<size_t>(slots[expert]) / each] += load[expert];
  return of_ranks;
}

double load_variation(std::span<const double> load, std::span<const int32_t> slots, int ranks) {
  const std::vector<double> of_ranks = load_of_ranks(load, slots, ranks);
  const double mean = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0) / ranks;
  if (ranks == 1 || mean <= 0) return 0;
  double squares = 0;
  for (const double own : of_ranks) squares += (own - mean) * (own - mean);
  return std::sqrt(squares / (ranks - 1)) / mean;
}

ExpertSlots pack_experts(std::span<const double> load, std::span<const int32_t> now, int ranks) {
  check_slots(load, now, ranks);
  const std::vector<int> group_of = pack_into_groups(load, ranks);
  const std::vector<int> rank_of = ranks_of_groups(group_of, now, ranks);
  const auto each = static_cast<int32_t>(now.size() / static_cast<size_t>(ranks));
  ExpertSlots slots(now.size(), -1);
  std::vector<bool> is_taken(now.size());
  const auto rank = [&](size_t expert) { return rank_of[static_cast<size_t>(group_of[expert])]; };
  for (size_t expert = 0; expert < now.size(); ++expert) {
    if (now[expert] / each != rank(expert)) continue;
    slots[expert] = now[expert];
    is_taken[static_cast<size_t>(now[expert])] = true;
  }
  for (size_t expert = 0; expert < now.size(); ++expert) {
    if (slots[expert] >= 0) continue;
    int32_t slot = rank(expert) * each;
    while (is_taken[static_cast<size_t>(slot)]) ++slot;
    slots[expert] = slot;
    is_taken[static_cast<size_t>(slot)] = true;
  }
  return slots;
}

}  // namespace ms::layout
