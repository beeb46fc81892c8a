#include "core/comm/process_groups.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/thread_comm.h"

namespace ms::core {
namespace {

// Two groups with the same context over the same ranks would receive each other's messages.
TEST(GroupContext, IsUniquePerGroup) {
  const std::multiset<int> contexts = {kWorldContext,     kTpContext,
                                       kPpContext,        kDpCpContext,
                                       kModelContext,     kCheckpointContext,
                                       kEmbeddingContext, kConfigurationContext,
                                       kStartContext,     kLocalCheckpointContext,
                                       kBenchmarkContext};
  EXPECT_EQ(std::set<int>(contexts.begin(), contexts.end()).size(), contexts.size());
  EXPECT_GE(*contexts.begin(), 0);
  EXPECT_LT(*contexts.rbegin(), 1024);
}

TEST(ProcessGroups, GroupsDifferInTheirAxesOnly) {
  test::run_thread_ranks(8, [](Endpoint& endpoint) {
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

}  // namespace
}  // namespace ms::core
