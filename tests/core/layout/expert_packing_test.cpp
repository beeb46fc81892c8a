#include "core/layout/expert_packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "core/rng.h"

namespace ms::layout {
namespace {

using Loads = std::vector<double>;

double busiest(const Loads& load, std::span<const int32_t> slots, int ranks) {
  return std::ranges::max(load_of_ranks(load, slots, ranks));
}

// The least load that the busiest rank can have: every way to give each rank as many experts.
double least_busiest(const Loads& load, int ranks) {
  const size_t each = load.size() / static_cast<size_t>(ranks);
  std::vector<int> rank_of(load.size());
  for (size_t expert = 0; expert < load.size(); ++expert) rank_of[expert] = static_cast<int>(expert / each);
  double least = std::accumulate(load.begin(), load.end(), 0.0);
  do {
    Loads of_ranks(static_cast<size_t>(ranks));
    for (size_t expert = 0; expert < load.size(); ++expert)
      of_ranks[static_cast<size_t>(rank_of[expert])] += load[expert];
    least = std::min(least, std::ranges::max(of_ranks));
  } while (std::ranges::next_permutation(rank_of).found);
  return least;
}

ExpertSlots drawn_slots(const core::Rng& rng, uint64_t& draw, size_t experts) {
  ExpertSlots slots = slots_in_order(static_cast<int64_t>(experts));
  for (size_t i = experts; i > 1; --i) std::swap(slots[i - 1], slots[rng.below(draw++, i)]);
  return slots;
}

std::set<std::set<int>> together(std::span<const int32_t> slots, int ranks) {
  const auto each = static_cast<int32_t>(slots.size() / static_cast<size_t>(ranks));
  std::vector<std::set<int>> of_ranks(static_cast<size_t>(ranks));
  for (size_t expert = 0; expert < slots.size(); ++expert)
    of_ranks[static_cast<size_t>(slots[expert] / each)].insert(static_cast<int>(expert));
  return {of_ranks.begin(), of_ranks.end()};
}

int num_moved(std::span<const int32_t> from, std::span<const int32_t> to, int ranks) {
  const auto each = static_cast<int32_t>(from.size() / static_cast<size_t>(ranks));
  int moved = 0;
  for (size_t expert = 0; expert < from.size(); ++expert) moved += from[expert] / each != to[expert] / each ? 1 : 0;
  return moved;
}

TEST(ExpertPacking, SlotsAreAPermutation) {
  EXPECT_EQ(slots_in_order(3), (ExpertSlots{0, 1, 2}));
  EXPECT_TRUE(is_permutation(ExpertSlots{2, 0, 1}));
  EXPECT_FALSE(is_permutation(ExpertSlots{2, 0, 2}));
  EXPECT_FALSE(is_permutation(ExpertSlots{3, 0, 1}));
  EXPECT_FALSE(is_permutation(ExpertSlots{-1, 0, 1}));
  EXPECT_EQ(experts_of_slots(ExpertSlots{2, 0, 1}), (std::vector<int32_t>{1, 2, 0}));
}

TEST(ExpertPacking, VariationIsThatOfTheRanksLoad) {
  const Loads load = {6, 2, 1, 3};
  EXPECT_EQ(load_of_ranks(load, slots_in_order(4), 2), (Loads{8, 4}));
  EXPECT_EQ(load_of_ranks(load, ExpertSlots{0, 2, 3, 1}, 2), (Loads{9, 3}));
  // torch.tensor([8., 4.]).std() / 6
  EXPECT_NEAR(load_variation(load, slots_in_order(4), 2), 2.8284271247461903 / 6, 1e-15);
  EXPECT_EQ(load_variation(load, slots_in_order(4), 1), 0);
  EXPECT_EQ(load_variation(Loads(4), slots_in_order(4), 2), 0) << "no tokens";
}

TEST(ExpertPacking, HotExpertsAreParted) {
  const ExpertSlots slots = pack_experts(Loads{50, 50, 0, 0}, slots_in_order(4), 2);
  EXPECT_NE(slots[0] / 2, slots[1] / 2);
  EXPECT_EQ(load_variation(Loads{50, 50, 0, 0}, slots, 2), 0);
}

// What MindSpeed puts together (bench/peers/expert_placement.py), whichever rank it is on.
TEST(ExpertPacking, PutsTogetherWhatMindSpeedDoes) {
  std::ifstream file(MS_TEST_DATA "/train/expert_packing.json");
  int seen = 0;
  for (const nlohmann::json& golden : nlohmann::json::parse(file)) {
    const auto load = golden.at("load").get<Loads>();
    const int ranks = golden.at("ranks");
    const ExpertSlots slots = pack_experts(load, slots_in_order(static_cast<int64_t>(load.size())), ranks);
    EXPECT_EQ(together(slots, ranks), golden.at("together").get<std::set<std::set<int>>>()) << golden;
    ++seen;
  }
  EXPECT_EQ(seen, 23);
}

TEST(ExpertPacking, IsNearTheBestOfAllPlacements) {
  const core::Rng rng(11, "loads of experts");
  uint64_t draw = 0;
  int even = 0, cases = 0;
  for (const auto& [experts, ranks] : {std::pair(4, 2), {6, 2}, {8, 2}, {6, 3}, {8, 4}, {9, 3}}) {
    for (int round = 0; round < 30; ++round) {
      Loads load;
      for (int expert = 0; expert < experts; ++expert)
        load.push_back(static_cast<double>(rng.below(draw++, round % 2 == 0 ? 100 : 8)));
      const ExpertSlots now = drawn_slots(rng, draw, load.size()), slots = pack_experts(load, now, ranks);
      const double seen = busiest(load, slots, ranks), best = least_busiest(load, ranks);
      // Where ranks may have any number of experts it is 4/3 - 1/(3 n) at most (Graham 1969).
      EXPECT_LE(seen, 1.5 * best) << experts << " on " << ranks;
      even += seen <= 1.1 * best ? 1 : 0;
      ++cases;
    }
  }
  EXPECT_GE(even, cases * 3 / 4);
}

TEST(ExpertPacking, MovesNoMoreThanThePackingNeeds) {
  const core::Rng rng(12, "loads of experts");
  uint64_t draw = 0;
  for (const auto& [experts, ranks] : {std::pair(8, 2), {8, 4}, {16, 4}, {64, 8}, {8, 8}, {8, 1}}) {
    for (int round = 0; round < 20; ++round) {
      Loads load;
      for (int expert = 0; expert < experts; ++expert) load.push_back(static_cast<double>(rng.below(draw++, 50)));
      const ExpertSlots now = drawn_slots(rng, draw, load.size()), slots = pack_experts(load, now, ranks);
      EXPECT_TRUE(is_permutation(slots));
      const int32_t each = experts / ranks;
      for (size_t expert = 0; expert < load.size(); ++expert) {
        if (slots[expert] / each != now[expert] / each) continue;
        EXPECT_EQ(slots[expert], now[expert]) << "who stays keeps the slot";
      }
      EXPECT_EQ(pack_experts(load, slots, ranks), slots) << "packed again, none moves";
      if (ranks > 2) continue;
      // Both ways to give two groups to two ranks.
      ExpertSlots other = slots;
      for (int32_t& slot : other) slot = (slot + each) % experts;
      EXPECT_LE(num_moved(now, slots, ranks), num_moved(now, other, ranks));
    }
  }
}

}  // namespace
}  // namespace ms::layout
