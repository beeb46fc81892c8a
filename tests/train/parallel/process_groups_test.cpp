#include "train/parallel/process_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/arena.h"
#include "core/tensor.h"
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

TEST(ProcessGroups, RanksThatShareSequencesReduceGradientsWithTheirReplicas) {
  test::run_thread_ranks(8, [](core::Endpoint& endpoint) {
    ProcessGroups groups(endpoint, {.tp = 2, .cp = 2, .dp = 2});
    const int rank = endpoint.rank();
    ASSERT_TRUE(groups.cp);
    EXPECT_EQ(groups.cp->world_ranks(), (std::vector<int>{rank / 4 * 4 + rank % 2, rank / 4 * 4 + rank % 2 + 2}));
    EXPECT_EQ(groups.of_training(layout::Group::kCp), &*groups.cp);
    EXPECT_EQ(groups.dp_cp.world_ranks(), (std::vector<int>{rank % 2, rank % 2 + 2, rank % 2 + 4, rank % 2 + 6}));
    EXPECT_EQ(groups.grid.replica(groups.at), groups.dp_cp.rank());
  });
}

TEST(ProcessGroups, NeighboursExchangeHeadsAndRanksWithTheirStrideFormARing) {
  test::run_thread_ranks(8, [](core::Endpoint& endpoint) {
    const int rank = endpoint.rank();
    ProcessGroups hybrid(endpoint, {.tp = 2, .cp = 4, .cp_ring = 2});
    const layout::ContextParts of_both = {.ulysses = 2, .ring = 2};
    EXPECT_EQ(hybrid.heads(of_both).world_ranks(),
              (std::vector<int>{rank / 4 * 4 + rank % 2, rank / 4 * 4 + rank % 2 + 2}));
    EXPECT_EQ(hybrid.ring(of_both).world_ranks(), (std::vector<int>{rank % 4, rank % 4 + 4}));
    EXPECT_EQ(&hybrid.heads({.ulysses = 4}), &*hybrid.cp);
    EXPECT_EQ(&hybrid.ring({.ring = 4}), &*hybrid.cp);
    EXPECT_FALSE(hybrid.cp_window);
    ProcessGroups windows(endpoint, {.cp = 8, .cp_window = 4, .cp_ring = 2});
    ASSERT_TRUE(windows.cp_window);
    EXPECT_EQ(windows.cp_window->world_ranks().front(), rank / 4 * 4);
    EXPECT_EQ(windows.cp_window->size(), 4);
    EXPECT_EQ(windows.ring({.window = 4, .ring = 2}).world_ranks(), (std::vector<int>{rank % 4, rank % 4 + 4}));
    EXPECT_FALSE(windows.ulysses);
    ProcessGroups one_ring(endpoint, {.cp = 8, .cp_ring = 8});
    EXPECT_EQ(&one_ring.ring({.ring = 8}), &*one_ring.cp);
    EXPECT_FALSE(one_ring.ulysses || one_ring.cp_window || one_ring.cp_ring);
    ProcessGroups exchange(endpoint, {.cp = 8});
    EXPECT_EQ(&exchange.heads({.ulysses = 8}), &*exchange.cp);
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

TEST(ProcessGroups, OfOneReplicaHaveMailboxesToo) {
  for (const layout::RankGrid& grid : {layout::RankGrid{.tp = 4}, layout::RankGrid{.tp = 2, .dp = 2}}) {
    test::run_thread_ranks(4, [&](core::Endpoint& endpoint) {
      core::Arena arena;
      const auto groups = open_process_groups(endpoint, grid, &arena);
      EXPECT_TRUE(groups->tp.has_mailbox());
      EXPECT_EQ(groups->tp.allreduce(int64_t{1}), grid.tp);
      // Partial sums of a layer are added up where they are.
      core::Tensor sums(arena, core::DType::kFp32, {100'000}, core::MemoryTag::kAct);
      std::fill_n(sums.data<float>(), sums.size(), 1.0F);
      groups->tp.allreduce(sums);
      EXPECT_EQ(sums.data<float>()[99'999], static_cast<float>(grid.tp));
      EXPECT_EQ(endpoint.arena().peak_bytes(core::MemoryTag::kComm), 0);
    });
  }
  test::run_thread_ranks(4, [&](core::Endpoint& endpoint) {
    EXPECT_FALSE(open_process_groups(endpoint, {.tp = 4}, nullptr)->tp.has_mailbox());
  });
}

TEST(ProcessGroups, InstancesOfTheOptimizerAreNeighbours) {
  test::run_thread_ranks(8, [](core::Endpoint& endpoint) {
    ProcessGroups groups(endpoint, {.tp = 2, .dp = 4, .dp_replica = 2, .query_parts = 2});
    const int rank = endpoint.rank();
    EXPECT_EQ(groups.of_training(layout::Group::kDpShard)->world_ranks(),
              (std::vector<int>{rank / 4 * 4 + rank % 2, rank / 4 * 4 + rank % 2 + 2}));
    EXPECT_EQ(groups.of_training(layout::Group::kDpReplica)->world_ranks(), (std::vector<int>{rank % 4, rank % 4 + 4}));
    EXPECT_EQ(groups.of_training(layout::Group::kQueryGroup)->world_ranks(), groups.tp.world_ranks());
  });
}

}  // namespace
}  // namespace ms::train
