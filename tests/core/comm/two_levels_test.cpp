// Collectives of groups that span machines, on thread ranks that are told so.
#include "core/comm/two_levels.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "core/arena.h"
#include "tests/support/comm_conformance.h"
#include "tests/support/thread_comm.h"

namespace ms {
namespace {

using core::CommOp;
using core::TensorView;

TEST(TwoLevels, NeedAsManyRanksOnEveryMachine) {
  const auto levels = [](const std::vector<int>& machines, int own) { return core::two_levels_of(machines, own); };
  const auto of_third = levels({7, 7, 4, 4, 9, 9}, 2);
  ASSERT_TRUE(of_third);
  EXPECT_EQ(of_third->within, (std::vector<int>{2, 3}));
  EXPECT_EQ(of_third->across, (std::vector<int>{0, 2, 4}));
  const auto dealt = levels({0, 1, 0, 1}, 3);
  ASSERT_TRUE(dealt);
  EXPECT_EQ(dealt->within, (std::vector<int>{1, 3}));
  EXPECT_EQ(dealt->across, (std::vector<int>{2, 3}));
  EXPECT_EQ(dealt->at, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_FALSE(levels({0, 0, 0, 0}, 1));
  EXPECT_FALSE(levels({0, 1, 2}, 1));
  EXPECT_FALSE(levels({0, 0, 1}, 1));
  EXPECT_FALSE(levels({}, 0));
}

using MachineOf = std::function<int(int rank)>;

// Counts what its rank sends to other machines.
class OnMachines final : public core::Transport {
 public:
  OnMachines(std::unique_ptr<core::Transport> inner, MachineOf machine, std::atomic<int64_t>& sent_bytes)
      : inner_(std::move(inner)), machine_(std::move(machine)), sent_bytes_(sent_bytes) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<core::TransferRequest> isend(const void* data, int64_t size_bytes, int peer, int32_t tag) override {
    if (machine_(peer) != machine_(rank())) sent_bytes_ += size_bytes;
    return inner_->isend(data, size_bytes, peer, tag);
  }
  std::unique_ptr<core::TransferRequest> irecv(void* data, int64_t size_bytes, int peer, int32_t tag) override {
    return inner_->irecv(data, size_bytes, peer, tag);
  }
  std::unique_ptr<core::Transport> duplicate() override { return inner_->duplicate(); }
  bool takes_turns() const override { return inner_->takes_turns(); }
  bool any_thread() const override { return inner_->any_thread(); }
  int machine_of(int rank) const override { return machine_(rank); }
  void share(const std::optional<core::SharedRange>& own) override { inner_->share(own); }
  std::byte* mailbox_memory(int of_rank) const override {
    return machine_(of_rank) == machine_(rank()) ? inner_->mailbox_memory(of_rank) : nullptr;
  }
  void check_world() const override { inner_->check_world(); }
  bool shares_with(int peer) const override { return machine_(peer) == machine_(rank()) && inner_->shares_with(peer); }
  int64_t shared_offset(const void* data, int64_t size_bytes) const override {
    return inner_->shared_offset(data, size_bytes);
  }
  std::byte* shared_address(int peer, int64_t offset) const override { return inner_->shared_address(peer, offset); }

 private:
  std::unique_ptr<core::Transport> inner_;
  MachineOf machine_;
  std::atomic<int64_t>& sent_bytes_;
};

struct Cluster {
  int ranks;
  MachineOf machine;
};
const std::array kClusters = {
    Cluster{4, [](int rank) { return rank / 2; }}, Cluster{8, [](int rank) { return rank / 2; }},
    Cluster{8, [](int rank) { return rank / 4; }}, Cluster{6, [](int rank) { return rank / 3; }},
    Cluster{6, [](int rank) { return rank % 3; }}, Cluster{5, [](int rank) { return rank / 2; }}};

// Returns the bytes between machines.
int64_t run_on(const Cluster& cluster, const std::function<void(core::Endpoint&)>& body, bool uses_levels = true) {
  std::atomic<int64_t> sent_bytes = 0;
  test::run_thread_ranks(
      cluster.ranks, body, 60, {},
      [&](std::unique_ptr<core::Transport> inner) {
        return std::make_unique<OnMachines>(std::move(inner), cluster.machine, sent_bytes);
      },
      {}, [&](int, core::Endpoint::Options& options) { options.uses_levels = uses_levels; });
  return sent_bytes;
}

TEST(TwoLevels, CommunicatorConforms) {
  for (const Cluster& cluster : kClusters) run_on(cluster, test::check_communicator);
}

TEST(TwoLevels, CommunicatorConformsWhereTheRanksOfAMachineShareMemory) {
  for (const Cluster& cluster : kClusters) {
    run_on(cluster, [](core::Endpoint& endpoint) {
      endpoint.share_memory(core::SharedRange{nullptr, INT64_MAX, -1});
      test::check_communicator(endpoint);
    });
  }
}

TEST(TwoLevels, CollectivesConformInSharedMemory) {
  run_on(kClusters[1], [](core::Endpoint& endpoint) {
    core::Arena arena;
    endpoint.share_memory(arena.share({core::MemoryTag::kParam, core::MemoryTag::kGrad}));
    test::check_shared_memory(endpoint, arena);
  });
}

// Groups that must add in the same order could else differ in their levels.
TEST(TwoLevels, NoGroupHasThemWhereMachinesHaveDifferentNumbersOfRanks) {
  const auto has_levels = [](int ranks) {
    std::atomic<bool> has = false;
    run_on({ranks, [](int rank) { return rank / 2; }}, [&](core::Endpoint& endpoint) {
      if (endpoint.rank() < 4) has = core::Communicator(endpoint, "part", {0, 1, 2, 3}, 0).levels() != nullptr;
    });
    return has.load();
  };
  EXPECT_TRUE(has_levels(6));
  EXPECT_FALSE(has_levels(7));
}

// A machine sends its data to each of the others once: the sum of its ranks, or the blocks of all of them.
TEST(TwoLevels, SendAMachinesDataOnce) {
  constexpr int64_t kCount = 1 << 20, kBytes = 4 * kCount;
  using Body = std::function<void(core::Communicator&, const TensorView& whole, const TensorView& part)>;
  const std::pair<CommOp, Body> bodies[] = {
      {CommOp::kAllreduce, [](auto& world, auto& whole, auto&) { world.allreduce(whole); }},
      {CommOp::kReduceScatter, [](auto& world, auto& whole, auto& part) { world.reduce_scatter(whole, part); }},
      {CommOp::kAllgather, [](auto& world, auto& whole, auto& part) { world.allgather(part, whole); }}};
  for (const auto& [op, body] : bodies) {
    const auto run = [&, &collective = body](core::Endpoint& endpoint) {
      core::Communicator world(endpoint, "world", {0, 1, 2, 3, 4, 5, 6, 7}, 0);
      std::vector<float> data(kCount), part(kCount / 8);
      collective(world, TensorView(data.data(), core::DType::kFp32, {kCount}),
                 TensorView(part.data(), core::DType::kFp32, {kCount / 8}));
    };
    const int64_t once = 2 * core::ring_bytes(op, kBytes, 2), announced = 8 * 16 * 8;
    const int64_t levels = run_on(kClusters[2], run);
    EXPECT_GE(levels, once) << core::comm_op_name(op);
    EXPECT_LE(levels, once + announced) << core::comm_op_name(op);
    EXPECT_GE(run_on(kClusters[2], run, /*uses_levels=*/false), 4 * once) << core::comm_op_name(op);
  }
}

// Ranks in different collectives see it on both levels; a rank that does not come is named.
TEST(TwoLevels, NameMismatchesAndSilentRanks) {
  for (const int culprit : {1, 3}) {  // on the machine of rank 0, and on the other one
    try {
      run_on(kClusters[0], [&](core::Endpoint& endpoint) {
        core::Communicator world(endpoint, "world", {0, 1, 2, 3}, 0);
        std::vector<float> data(40'000), all(160'000);
        const TensorView whole(all.data(), core::DType::kFp32, {160'000});
        if (endpoint.rank() == culprit) {
          world.allgather(TensorView(data.data(), core::DType::kFp32, {40'000}), whole);
        } else {
          world.allreduce(whole);
        }
      });
      FAIL() << "no rank may pass";
    } catch (const core::Error& e) {
      EXPECT_EQ(e.code(), core::ErrorCode::kInternal) << e.what();
      EXPECT_NE(std::string(e.what()).find("allgather of 160000 fp32"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(core::cat("rank ", culprit)), std::string::npos) << e.what();
    }
  }
  std::atomic<int64_t> bytes = 0;
  try {
    test::run_thread_ranks(
        4,
        [](core::Endpoint& endpoint) {
          core::Communicator world(endpoint, "world", {0, 1, 2, 3}, 0);
          std::vector<float> data(40'000);
          if (endpoint.rank() != 3) world.allreduce(TensorView(data.data(), core::DType::kFp32, {40'000}));
          if (endpoint.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(600));
        },
        /*timeout_s=*/0.2, {},
        [&](std::unique_ptr<core::Transport> inner) {
          return std::make_unique<OnMachines>(std::move(inner), kClusters[0].machine, bytes);
        });
    FAIL() << "the wait must end";
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kPeerFailed) << e.what();
  }
}

}  // namespace
}  // namespace ms
