// Which ranks a rank of a job of 32 communicates with: the peers of its groups, and a few others for what all ranks
// agree on; never all of them.
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "core/layout/rank_grid.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "train/parallel/process_groups.h"

namespace ms {
namespace {

using test::TinyLayout;

constexpr int kRanks = 32;

// Peers of each rank, in either direction: over TCP, one connection each.
struct Contacts {
  std::mutex mutex;
  std::vector<std::set<int>> of = std::vector<std::set<int>>(kRanks);
};

class CountingTransport final : public core::Transport {
 public:
  CountingTransport(std::unique_ptr<core::Transport> inner, Contacts& contacts)
      : inner_(std::move(inner)), contacts_(contacts) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<core::TransferRequest> isend(const void* data, int64_t size_bytes, int peer, int32_t tag) override {
    {
      std::lock_guard lock(contacts_.mutex);
      contacts_.of[static_cast<size_t>(rank())].insert(peer);
      contacts_.of[static_cast<size_t>(peer)].insert(rank());
    }
    return inner_->isend(data, size_bytes, peer, tag);
  }
  std::unique_ptr<core::TransferRequest> irecv(void* data, int64_t size_bytes, int peer, int32_t tag) override {
    return inner_->irecv(data, size_bytes, peer, tag);
  }

 private:
  std::unique_ptr<core::Transport> inner_;
  Contacts& contacts_;
};

// Runs the start and the first step, and records which ranks met. (A save brings every rank's report to rank 0.)
void run_job(const test::TemporaryFolder& folder, const TinyLayout& layout, Contacts& contacts) {
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.train_iters = 1;
  config.training.global_batch_size = layout.dp * 4;
  test::run_thread_ranks(
      kRanks,
      [&](core::Endpoint& endpoint) {
        core::ThreadPool pool(1);
        train::Trainer(config, endpoint, pool, nullptr, {}).run();
      },
      60, {},
      [&](std::unique_ptr<core::Transport> inner) {
        return std::make_unique<CountingTransport>(std::move(inner), contacts);
      });
}

// Agreements and broadcast trees reach ranks at distances of 1, 2, 4, 8 and 16 in both directions.
bool is_a_power_of_two_away(int a, int b) {
  for (int step = 1; step < kRanks; step *= 2) {
    if ((a + step) % kRanks == b || (b + step) % kRanks == a) return true;
  }
  return false;
}

TEST(Contacts, PeersAreTheGroupsAndFewOthers) {
  for (const TinyLayout& layout : {TinyLayout{2, 4, 4, true, true}, TinyLayout{4, 1, 8, true, false}}) {
    test::TemporaryFolder folder;
    Contacts contacts;
    run_job(folder, layout, contacts);
    const layout::RankGrid grid{.tp = layout.tp, .cp = 1, .dp = layout.dp, .pp = layout.pp};
    size_t most = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      std::set<int> own;
      for (unsigned axes : {unsigned{layout::RankGrid::kTp}, unsigned{layout::RankGrid::kPp},
                            unsigned{layout::RankGrid::kDp}, layout::RankGrid::kTp | layout::RankGrid::kPp}) {
        for (int peer : grid.group(rank, axes)) own.insert(peer);
      }
      for (int peer : contacts.of[static_cast<size_t>(rank)]) {
        EXPECT_TRUE(own.count(peer) == 1 || is_a_power_of_two_away(rank, peer)) << rank << " met " << peer;
      }
      most = std::max(most, contacts.of[static_cast<size_t>(rank)].size());
    }
    EXPECT_LE(most, 18U) << layout.name();  // of 31: 9 by powers of two, the others are peers
  }
}

TEST(Contacts, AgreementPeersGrowWithLogOfRanks) {
  Contacts contacts;
  test::run_thread_ranks(
      kRanks,
      [](core::Endpoint& endpoint) {
        train::ProcessGroups groups(endpoint, {.tp = 1, .cp = 1, .dp = kRanks, .pp = 1});
        EXPECT_EQ(groups.world.allreduce(int64_t{endpoint.rank()}), kRanks * (kRanks - 1) / 2);
        groups.world.barrier();
        EXPECT_EQ(groups.world.allgather_strings(std::to_string(endpoint.rank())).back(), std::to_string(kRanks - 1));
      },
      60, {},
      [&](std::unique_ptr<core::Transport> inner) {
        return std::make_unique<CountingTransport>(std::move(inner), contacts);
      });
  for (const std::set<int>& met : contacts.of) EXPECT_LE(met.size(), 9U);
}

}  // namespace
}  // namespace ms
