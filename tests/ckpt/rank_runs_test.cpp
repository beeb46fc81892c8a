#include "ckpt/rank_runs.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ms::ckpt {
namespace {

TEST(RankRunsTest, EqualsVectorOfRanks) {
  std::mt19937 random(7);
  RankRuns runs;
  std::vector<int32_t> ranks;
  EXPECT_TRUE(runs.empty());
  EXPECT_EQ(runs.size(), 0u);
  for (int32_t rank = 0; rank < 200; rank += static_cast<int32_t>(1 + random() % 3)) {
    for (auto shards = random() % 9; shards > 0; --shards) {
      runs.push_back(rank);
      ranks.push_back(rank);
      ASSERT_EQ(runs.back(), rank);
    }
  }
  ASSERT_EQ(runs.size(), ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) ASSERT_EQ(runs[i], ranks[i]) << i;
}

}  // namespace
}  // namespace ms::ckpt
