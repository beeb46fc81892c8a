#include "train/parallel/process_groups.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/thread_comm.h"

namespace ms::train {
namespace {

TEST(ProcessGroups, GroupsDifferInTheirAxesOnly) {
  test::run_thread_ranks(8, [](core::Endpoint& endpoint) {
    ProcessGroups groups(endpoint, {.tp = 2, .cp = 1, .dp = 2, .pp = 2});
    const int rank = endpoint.rank();
    EXPECT_EQ(groups.tp.world_ranks(), (std::vector<int>{rank / 2 * 2, rank / 2 * 2 + 1}));
    EXPECT_EQ(groups.dp_cp.world_ranks(), (std::vector<int>{rank / 4 * 4 + rank % 2, rank / 4 * 4 + rank % 2 + 2}));
    EXPECT_EQ(groups.pp.world_ranks(), (std::vector<int>{rank % 4, rank % 4 + 4}));
    EXPECT_EQ(groups.world.size(), 8);
    ASSERT_TRUE(groups.embedding);
    EXPECT_EQ(groups.embedding->world_ranks(), groups.pp.world_ranks());
  });
}

TEST(ProcessGroups, EmbeddingGroupIsFirstAndLastStage) {
  test::run_thread_ranks(8, [](core::Endpoint& endpoint) {
    ProcessGroups groups(endpoint, {.tp = 2, .cp = 1, .dp = 1, .pp = 4});
    const bool end = groups.at.pp == 0 || groups.at.pp == groups.grid.pp - 1;
    ASSERT_EQ(groups.embedding.has_value(), end);
    if (end) {
      EXPECT_EQ(groups.embedding->world_ranks(), (std::vector<int>{endpoint.rank() % 2, 6 + endpoint.rank() % 2}));
      EXPECT_EQ(groups.embedding->allreduce(int64_t{endpoint.rank()}), 6 + 2 * (endpoint.rank() % 2));
    }
  });
}

}  // namespace
}  // namespace ms::train
