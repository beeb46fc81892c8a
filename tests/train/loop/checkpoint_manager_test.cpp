// When a run saves, what happens to a save that is due while the previous one is unfinished, and to a run whose save
// fails.
#include "train/loop/checkpoint_manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <string_view>
#include <vector>

#include "ckpt/commit.h"
#include "core/comm/agree.h"
#include "core/layout/model_layout.h"
#include "core/thread_pool.h"
#include "tests/ckpt/state.h"
#include "tests/support/thread_comm.h"

namespace ms::train {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

// One of two ranks, each of which holds half a model.
class SavingRank {
 public:
  SavingRank(const CheckpointConfig& config, core::Endpoint& endpoint)
      : saves(config, {.tp = 2}, endpoint.rank(), {.arena = &arena_, .pool = &pool_}),
        rank(endpoint.rank()),
        state_(kLayout, model_, endpoint.rank(), ckpt::test::mixed_roles()),
        world_(endpoint, "world", {0, 1}, 1),
        checkpoint_(endpoint, "checkpoint", {0, 1}, 2),
        local_(endpoint, "local", {0, 1}, 3) {
    saves.open_persistent(checkpoint_);
    if (!config.non_persistent_local_ckpt_dir.empty()) saves.open_local(local_);
  }

  // Ends a step: increments its number and exchanges the status of saves.
  std::array<double, CheckpointManager::kNumStatuses> step() {
    ++iteration;
    const auto told = saves.local_status();
    std::vector<double> sums(told.begin(), told.end());
    world_.allreduce(sums);
    std::copy(sums.begin(), sums.end(), heard_.begin());
    saves.set_global_status(heard_);
    return heard_;
  }
  void save_if_due() { saves.save_if_due(iteration, request_); }
  void close(bool save) { saves.close(save, iteration, request_); }

 private:
  static constexpr layout::ModelLayout kLayout{.tensor_model_parallel_size = 2};

  ckpt::SaveRequest make_request(RankPart part) const {
    ckpt::SaveRequest request{ckpt::test::make_info(kLayout, model_, iteration), state_.data()};
    if (part == RankPart::kShare) return request;
    const std::vector<core::ShardedTensor> own = ckpt::own_tensors(state_.metas);
    for (size_t i = 0; i < own.size(); ++i) request.shards[i].meta = own[i];
    return request;
  }

  core::Arena arena_;
  core::ThreadPool pool_{1};

 public:
  CheckpointManager saves;
  const int rank;
  int64_t iteration = 0;

 private:
  const core::TransformerConfig model_ = ckpt::test::small_model(40);
  const ckpt::test::RankState state_;
  const CheckpointManager::RequestOf request_ = [this](RankPart part) { return make_request(part); };
  std::array<double, CheckpointManager::kNumStatuses> heard_{};
  core::Communicator world_, checkpoint_, local_;
};

void on_two_ranks(const CheckpointConfig& config, const std::function<void(SavingRank&)>& body) {
  test::run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    SavingRank rank(config, endpoint);
    body(rank);
  });
}

std::vector<int64_t> iterations_in(const fs::path& root) {
  std::vector<int64_t> iterations;
  for (const ckpt::Generation& generation : ckpt::list_generations(root)) iterations.push_back(generation.iteration);
  std::sort(iterations.begin(), iterations.end());
  return iterations;
}

using Iterations = std::vector<int64_t>;

TEST(CheckpointManager, HappenAtTheIntervalAndOnceAtTheEnd) {
  for (const int64_t last : {6, 7}) {
    TemporaryFolder folder;
    CheckpointConfig config;
    config.save = folder / "root";
    config.save_interval = 3;
    on_two_ranks(config, [&](SavingRank& rank) {
      while (rank.iteration < last) {
        rank.saves.before_update();
        rank.step();
        rank.saves.finish_failed();
        rank.save_if_due();
      }
      rank.close(true);
      EXPECT_EQ(rank.saves.last_path(), fs::path(config.save) / ckpt::generation_name(last, 0));
    });
    EXPECT_EQ(iterations_in(config.save), last == 6 ? Iterations({3, 6}) : Iterations({3, 6, 7}));
  }
}

TEST(CheckpointManager, NoneAtTheEndOfARunEndedByASignal) {
  TemporaryFolder folder;
  CheckpointConfig config;
  config.save = folder / "root";
  on_two_ranks(config, [&](SavingRank& rank) {
    rank.step();
    rank.close(false);
    EXPECT_EQ(rank.saves.last_path(), fs::path());
  });
  EXPECT_TRUE(iterations_in(config.save).empty());
}

// A local save in addition would be a second snapshot of the same state.
TEST(CheckpointManager, PersistentOneWinsWhenBothAreDue) {
  TemporaryFolder folder;
  CheckpointConfig config;
  config.save = folder / "root";
  config.save_interval = 4;
  config.non_persistent_ckpt_type = "local";
  config.non_persistent_local_ckpt_dir = folder / "node";
  config.non_persistent_save_interval = 2;
  on_two_ranks(config, [&](SavingRank& rank) {
    while (rank.iteration < 4) {
      rank.step();
      rank.save_if_due();
    }
    rank.close(false);
  });
  EXPECT_EQ(iterations_in(config.save), Iterations({4}));
  for (const char* rank : {"rank_00000", "rank_00001"}) {
    EXPECT_EQ(iterations_in(fs::path(config.non_persistent_local_ckpt_dir) / rank), Iterations({2}));
  }
}

// Decided by the status that all ranks have agreed on, not by what a rank sees itself; otherwise ranks could act
// differently.
TEST(CheckpointManager, NextWaitsOrIsSkippedWhileOneIsUnfinished) {
  for (const bool skips : {false, true}) {
    TemporaryFolder folder;
    CheckpointConfig config;
    config.save = folder / "root";
    config.save_interval = 1;
    config.ckpt_overlap = skips ? "skip" : "wait";
    on_two_ranks(config, [&](SavingRank& rank) {
      rank.step();
      for (const double unfinished : {0, 1, 0}) {
        rank.saves.set_global_status(std::array<double, CheckpointManager::kNumStatuses>{unfinished, 0, 0, 0});
        rank.save_if_due();
        ++rank.iteration;
      }
      rank.close(false);
    });
    EXPECT_EQ(iterations_in(config.save), skips ? Iterations({1, 3}) : Iterations({1, 2, 3}));
  }
}

TEST(CheckpointManager, FailureEndsTheRunOrIsAWarning) {
  for (const bool stops : {false, true}) {
    TemporaryFolder folder;
    CheckpointConfig config;
    config.save = folder / "root";
    config.save_interval = 1;
    config.ckpt_on_error = stops ? "stop" : "continue";
    std::atomic<int> ended = 0, outlived = 0;
    on_two_ranks(config, [&](SavingRank& rank) {
      if (rank.rank == 0) {
        fs::remove_all(config.save);
        std::ofstream(config.save) << "a file";
      }
      rank.step();
      rank.save_if_due();
      while (rank.step()[1] == 0) {
      }
      try {
        rank.saves.finish_failed();
        ++outlived;
      } catch (const core::AgreedError&) {
        ++ended;
      }
    });
    EXPECT_EQ(ended, stops ? 2 : 0);
    EXPECT_EQ(outlived, stops ? 0 : 2);
  }
}

}  // namespace
}  // namespace ms::train
