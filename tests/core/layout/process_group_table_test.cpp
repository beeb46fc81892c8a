#include "core/layout/process_group_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace ms::layout {
namespace {

const RankGrid kGrids[] = {{.tp = 2, .dp = 2, .pp = 2},
                           {.tp = 1, .dp = 3, .pp = 4, .order = kTpCpEpPpDp},
                           {.tp = 4, .cp = 8, .dp = 4, .tp_y = 2, .cp_window = 2, .cp_ring = 2, .dp_replica = 2},
                           {.tp = 2, .dp = 4, .pp = 2, .etp = 1, .ep = 4},
                           {.tp = 4, .dp = 2, .query_parts = 2},
                           {.tp = 2, .cp = 8, .dp = 2, .cp_ring = 8, .chooses_cp = true},
                           {.dp = 1}};

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

// An axis is the product of its parts: a group along the axis has one rank in common with each combination of them.
TEST(ProcessGroupTable, PartsOfAnAxisCutItsGroups) {
  const RankGrid grid{.tp = 4, .cp = 8, .dp = 4, .tp_y = 2, .cp_window = 2, .cp_ring = 2, .dp_replica = 2};
  EXPECT_EQ(ranks_of_group(Group::kTpX, grid, 1), (std::vector<int>{0, 1}));
  EXPECT_EQ(ranks_of_group(Group::kTpY, grid, 1), (std::vector<int>{1, 3}));
  EXPECT_EQ(ranks_of_group(Group::kCp, grid, 0), (std::vector<int>{0, 4, 8, 12, 16, 20, 24, 28}));
  EXPECT_EQ(ranks_of_group(Group::kUlysses, grid, 0), (std::vector<int>{0, 4}));
  EXPECT_EQ(ranks_of_group(Group::kCpWindow, grid, 0), (std::vector<int>{0, 8}));
  EXPECT_EQ(ranks_of_group(Group::kCpRing, grid, 0), (std::vector<int>{0, 16}));
  EXPECT_EQ(ranks_of_group(Group::kDp, grid, 5), (std::vector<int>{5, 37, 69, 101}));
  // An instance of the optimizer divides its state over the ranks that share its sequences, too.
  EXPECT_EQ(ranks_of_group(Group::kDpShard, grid, 5),
            (std::vector<int>{1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61}));
  EXPECT_EQ(ranks_of_group(Group::kDpReplica, grid, 5), (std::vector<int>{5, 69}));
}

TEST(ProcessGroupTable, NeighboursShareAQueryGroup) {
  const RankGrid grid{.tp = 4, .dp = 2, .query_parts = 2};
  EXPECT_EQ(ranks_of_group(Group::kQueryGroup, grid, 5), (std::vector<int>{4, 5}));
  EXPECT_EQ(ranks_of_group(Group::kQueryGroup, grid, 2), (std::vector<int>{2, 3}));
  EXPECT_EQ(ranks_of_group(Group::kQueryGroup, {.tp = 4}, 2), std::vector<int>{2});
}

TEST(ProcessGroupTable, NeighboursShareSamplesThatNeedNoMoreRanks) {
  RankGrid grid{.tp = 2, .cp = 8, .dp = 2, .cp_ring = 8, .chooses_cp = true};
  EXPECT_EQ(ranks_of_group(Group::kCp2, grid, 5), (std::vector<int>{5, 7}));
  EXPECT_EQ(ranks_of_group(Group::kCp2, grid, 3), (std::vector<int>{1, 3}));
  EXPECT_EQ(ranks_of_group(Group::kCp4, grid, 26), (std::vector<int>{24, 26, 28, 30}));
  EXPECT_TRUE(ranks_of_group(Group::kCp8, grid, 0).empty());  // that is kCp
  EXPECT_EQ(group_of_degree(grid, 2), Group::kCp2);
  EXPECT_EQ(group_of_degree(grid, 4), Group::kCp4);
  EXPECT_EQ(group_of_degree(grid, 8), Group::kCp);
  grid.chooses_cp = false;
  EXPECT_TRUE(ranks_of_group(Group::kCp2, grid, 5).empty());
}

TEST(ProcessGroupTable, GroupsOfExpertsAreThoseOfTheRestWhereTheyHaveTheSameRanks) {
  const auto names = [](const RankGrid& grid) {
    return std::string(group_name(group_of_expert_replicas(grid))) + " " +
           std::string(group_name(group_of_expert_parts(grid))) + " " +
           std::string(group_name(group_of_all_experts(grid)));
  };
  EXPECT_EQ(names({.tp = 2, .dp = 2, .etp = 2}), "dp_cp tp tp");
  EXPECT_EQ(names({.tp = 2, .dp = 4, .etp = 2, .ep = 2}), "expert_dp tp etp_ep");
  EXPECT_EQ(names({.tp = 2, .dp = 4, .etp = 1, .ep = 4}), "expert_dp etp ep");
  EXPECT_EQ(names({.tp = 4, .dp = 1, .etp = 2}), "expert_dp etp etp");
  const RankGrid grid{.tp = 2, .dp = 4, .pp = 2, .etp = 1, .ep = 4};
  EXPECT_EQ(ranks_of_group(Group::kEp, grid, 9), (std::vector<int>{8, 9, 10, 11}));
  EXPECT_EQ(ranks_of_group(Group::kExpertDp, grid, 9), (std::vector<int>{9, 13}));
}

TEST(ProcessGroupTable, BlocksOfExpertsAreTensorParallelRanks) {
  const RankGrid grid{.tp = 2, .dp = 8, .pp = 2, .etp = 1, .ep = 8};
  EXPECT_TRUE(has_blocks_of_experts(grid));
  EXPECT_EQ(ranks_of_group(Group::kEpOuter, grid, 3), (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(ranks_of_group(Group::kEpOuter, grid, 28), (std::vector<int>{24, 26, 28, 30}));
  for (const RankGrid& none : {RankGrid{.tp = 2, .dp = 2, .etp = 1, .ep = 2}, RankGrid{.dp = 4, .ep = 4},
                               RankGrid{.tp = 2, .dp = 4, .etp = 2, .ep = 4}}) {
    EXPECT_FALSE(has_blocks_of_experts(none));
    EXPECT_TRUE(ranks_of_group(Group::kEpOuter, none, 1).empty());
  }
}

TEST(ProcessGroupTable, EmbeddingGroupIsFirstAndLastStage) {
  EXPECT_EQ(ranks_of_group(Group::kEmbedding, {.tp = 2, .pp = 4}, 1), (std::vector<int>{1, 7}));
  EXPECT_TRUE(ranks_of_group(Group::kEmbedding, {.tp = 2, .pp = 4}, 2).empty());
  EXPECT_TRUE(ranks_of_group(Group::kEmbedding, {.tp = 2}, 1).empty());
}

}  // namespace
}  // namespace ms::layout
