#include "core/layout/process_group_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace ms::layout {
namespace {

const RankGrid kGrids[] = {{.tp = 2, .dp = 2, .pp = 2}, {.tp = 1, .dp = 3, .pp = 4, .pp_before_dp = true}, {.dp = 1}};

TEST(ProcessGroupTable, EveryGroupHasANameAndANumberOfItsOwn) {
  std::set<std::string_view> names;
  for (int number = 0; number < kNumGroups; ++number) names.insert(group_name(static_cast<Group>(number)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumGroups));
}

TEST(ProcessGroupTable, MembersAgreeOnTheGroup) {
  for (const RankGrid& grid : kGrids) {
    for (int number = 0; number < kNumGroups; ++number) {
      const auto group = static_cast<Group>(number);
      for (int rank = 0; rank < grid.world_size(); ++rank) {
        const std::vector<int> ranks = ranks_of_group(group, grid, rank);
        if (ranks.empty()) continue;
        EXPECT_NE(std::find(ranks.begin(), ranks.end(), rank), ranks.end());
        for (const int other : ranks) EXPECT_EQ(ranks_of_group(group, grid, other), ranks);
      }
    }
  }
}

TEST(ProcessGroupTable, ControlGroupsHaveAllRanks) {
  const RankGrid& grid = kGrids[0];
  EXPECT_EQ(ranks_of_group(Group::kStart, grid, 3).size(), 8U);
  EXPECT_LT(static_cast<int>(Group::kEmbedding), kNumTrainingGroups);
  for (int number = kNumTrainingGroups; number < kNumGroups; ++number)
    EXPECT_EQ(ranks_of_group(static_cast<Group>(number), grid, 0).size(), 8U) << number;
}

TEST(ProcessGroupTable, EmbeddingGroupIsFirstAndLastStage) {
  EXPECT_EQ(ranks_of_group(Group::kEmbedding, {.tp = 2, .pp = 4}, 1), (std::vector<int>{1, 7}));
  EXPECT_TRUE(ranks_of_group(Group::kEmbedding, {.tp = 2, .pp = 4}, 2).empty());
  EXPECT_TRUE(ranks_of_group(Group::kEmbedding, {.tp = 2}, 1).empty());
}

}  // namespace
}  // namespace ms::layout
