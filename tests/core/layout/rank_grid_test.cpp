#include "core/layout/rank_grid.h"

#include <gtest/gtest.h>

#include <vector>

namespace ms::layout {
namespace {

TEST(RankGrid, UsesMegatronsRankOrder) {
  const RankGrid grid{.tp = 2, .cp = 1, .dp = 2, .pp = 2};
  EXPECT_EQ(grid.group(0, RankGrid::kTp), (std::vector<int>{0, 1}));
  EXPECT_EQ(grid.group(0, RankGrid::kDp), (std::vector<int>{0, 2}));
  EXPECT_EQ(grid.group(0, RankGrid::kPp), (std::vector<int>{0, 4}));
  EXPECT_EQ(grid.group(5, RankGrid::kTp | RankGrid::kPp), (std::vector<int>{0, 1, 4, 5}));
  for (int rank = 0; rank < grid.world_size(); ++rank) EXPECT_EQ(grid.rank(grid.coordinates(rank)), rank);
}

// Megatron's RankGenerator(order="tp-cp-ep-pp-dp").
TEST(RankGrid, UsesTpPpDpOrderIfRequested) {
  const RankGrid grid{.tp = 2, .cp = 1, .dp = 3, .pp = 2, .pp_before_dp = true};
  EXPECT_EQ(grid.group(0, RankGrid::kTp), (std::vector<int>{0, 1}));
  EXPECT_EQ(grid.group(0, RankGrid::kPp), (std::vector<int>{0, 2}));
  EXPECT_EQ(grid.group(3, RankGrid::kDp), (std::vector<int>{3, 7, 11}));
  EXPECT_EQ(grid.group(5, RankGrid::kTp | RankGrid::kPp), (std::vector<int>{4, 5, 6, 7}));
  for (int rank = 0; rank < grid.world_size(); ++rank) EXPECT_EQ(grid.rank(grid.coordinates(rank)), rank);
}

}  // namespace
}  // namespace ms::layout
