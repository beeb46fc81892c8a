// The optimizer's state outside memory between updates: no bit changes, three chunks stay, checkpoints have all of it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "ckpt/verify.h"
#include "core/error.h"
#include "core/layout/state_chunks.h"
#include "tests/support/fault_injection.h"
#include "tests/support/open_files.h"
#include "tests/support/tiny_run.h"
#include "train/memory/state_memory.h"

namespace ms {
namespace {

using core::MemoryTag;
using core::TensorRole;
using test::TinyLayout;
using Change = std::function<void(train::TrainerConfig&)>;

constexpr int64_t kTimes = 5;
constexpr TensorRole kRoles[] = {TensorRole::kParam, TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq};

class SwapOptimizer : public testing::Test {
 protected:
  struct Run {
    bool swaps = false;
    int64_t until = 3;
    std::string save, load = {};
  };

  train::TrainerConfig config_of(const TinyLayout& layout, const Run& how, const Change& change) const {
    train::TrainerConfig config = test::tiny_config(folder_.path(), layout);
    config.training.train_iters = how.until;
    config.optimizer.weight_decay = 0.1;
    config.optimizer.clip_grad = 0.1;  // all gradients are clipped
    config.optimizer.swap_optimizer = how.swaps;
    if (how.swaps) {
      config.optimizer.swap_optimizer_times = kTimes;
      config.training.swap_dir = folder_.path().string();
    }
    config.checkpoint.save = folder_ / how.save;
    config.checkpoint.save_interval = 2;
    config.checkpoint.save_keep_last = 1;
    if (!how.load.empty()) config.checkpoint.load = folder_ / how.load;
    change(config);
    return config;
  }
  std::vector<train::RunSummary> run(const TinyLayout& layout, const Run& how, const Change& change) const {
    return test::run_all_on_threads(config_of(layout, how, change), layout.ranks());
  }

  static void expect_same(const std::vector<train::RunSummary>& swapped, const std::vector<train::RunSummary>& plain) {
    ASSERT_EQ(swapped[0].steps.size(), plain[0].steps.size());
    for (size_t i = 0; i < plain[0].steps.size(); ++i) {
      if (plain[0].steps[i].passed_over) continue;  // without loss and norm
      EXPECT_EQ(swapped[0].steps[i].loss, plain[0].steps[i].loss) << "step " << i + 1;
      EXPECT_EQ(swapped[0].steps[i].grad_norm, plain[0].steps[i].grad_norm) << "step " << i + 1;
    }
    for (const TensorRole role : kRoles) {
      const auto tensors = test::read_tensors(plain[0].checkpoint, role);
      EXPECT_EQ(tensors.empty(), role == TensorRole::kMaster && !has_master(plain)) << core::role_name(role);
      EXPECT_EQ(test::largest_distance(test::read_tensors(swapped[0].checkpoint, role), tensors), 0)
          << core::role_name(role);
    }
  }

  static bool has_master(const std::vector<train::RunSummary>& of) { return peak(of[0], MemoryTag::kMaster) > 0; }
  static int64_t peak(const train::RunSummary& summary, MemoryTag tag) {
    return summary.steps.back().peak_bytes[static_cast<size_t>(tag)];
  }

  // Also that each run continues from the checkpoint of the other.
  void expect_no_bit_changes(const TinyLayout& layout, const Change& change) const {
    const auto swapped = run(layout, {.swaps = true, .save = "swapped"}, change);
    const auto plain = run(layout, {.save = "plain"}, change);
    expect_same(swapped, plain);
    EXPECT_GT(plain[0].steps.back().grad_norm, 0.1) << "clipped";
    for (size_t rank = 0; rank < plain.size(); ++rank) {
      SCOPED_TRACE(core::cat("rank ", rank));
      ASSERT_TRUE(swapped[rank].steps.back().tier.has_value());
      const train::TierUse& use = *swapped[rank].steps.back().tier;
      const int64_t state = peak(plain[rank], MemoryTag::kMaster) + peak(plain[rank], MemoryTag::kOptim);
      EXPECT_EQ(use.written_bytes, use.read_bytes);
      EXPECT_GE(use.written_bytes, state);
      EXPECT_LE(use.written_bytes, state + 3 * 4096);
      EXPECT_EQ(use.peak_bytes, use.written_bytes);
      for (const MemoryTag tag : {MemoryTag::kMaster, MemoryTag::kOptim}) {
        const int64_t parts = tag == MemoryTag::kOptim ? 2 : 1;
        const int64_t elements = peak(plain[rank], tag) / 4 / parts;
        EXPECT_EQ(peak(swapped[rank], tag), 4 * parts * layout::StateChunks(elements, kTimes).elements_in_memory());
        EXPECT_LE(4 * peak(swapped[rank], tag), 3 * peak(plain[rank], tag)) << core::memory_tag_name(tag);
      }
      for (const MemoryTag tag : {MemoryTag::kParam, MemoryTag::kGrad, MemoryTag::kAct})
        EXPECT_EQ(peak(swapped[rank], tag), peak(plain[rank], tag)) << core::memory_tag_name(tag);
    }
    expect_same(run(layout, {.swaps = true, .until = 5, .save = "from_plain", .load = "plain"}, change),
                run(layout, {.until = 5, .save = "from_swapped", .load = "swapped"}, change));
  }

  test::TemporaryFolder folder_;
};

TEST_F(SwapOptimizer, ChangesNoBitInFp32AndBf16OnAnyLayout) {
  const TinyLayout layouts[] = {{},           {1, 1, 2, 1}, {2, 2, 1, 0, true, 2}, {2, 1, 2, 1, true},
                                {1, 1, 2, 2}, {1, 1, 2, 3}, {2, 1, 2, 3, true},    {1, 2, 1, 0, false, 1, "zb-v"}};
  for (const TinyLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    expect_no_bit_changes(layout, [](auto& config) { config.training.bf16 = true; });
    if (layout.tp == 1 && layout.zero <= 1) expect_no_bit_changes(layout, [](auto&) {});
  }
}

TEST_F(SwapOptimizer, ChangesNoBitWithOtherFeatures) {
  const std::pair<const char*, Change> changes[] = {
      {"fp16",
       [](auto& config) {
         config.training.fp16 = true;
         config.training.initial_loss_scale = 1024;
       }},
      {"overlapped reductions and gathers",
       [](auto& config) {
         config.training.bf16 = true;
         config.parallel.overlap_grad_reduce = config.parallel.overlap_param_gather = true;
         config.parallel.ddp_num_buckets = 3;
       }},
      {"activations leave memory, too",
       [](auto& config) {
         config.training.bf16 = true;
         config.training.swap_attention = true;
         config.training.swap_min_tensor_kib = 0;
         config.training.swap_dir = config.checkpoint.save;  // of both runs
         std::filesystem::create_directories(config.checkpoint.save);
       }},
      {"frozen embeddings", [](auto& config) { config.optimizer.freeze_parameters = "embedding"; }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    const TinyLayout layout{1, 1, 2, 1};
    const auto swapped = run(layout, {.swaps = true, .save = "swapped"}, change);
    const auto plain = run(layout, {.save = "plain"}, change);
    expect_same(swapped, plain);
    EXPECT_LT(peak(swapped[0], MemoryTag::kOptim), peak(plain[0], MemoryTag::kOptim));
  }
}

TEST_F(SwapOptimizer, ChangesNoBitWithExperts) {
  const auto experts = [](int ep, int instances) -> Change {
    return [ep, instances](auto& config) {
      config.training.bf16 = true;
      config.model.num_experts = 4;
      config.model.moe_ffn_hidden_size = 24;
      config.training.moe_aux_loss_coeff = {0.01};
      config.parallel.moe_token_dispatcher_type = "alltoall";
      config.parallel.expert_model_parallel_size = ep;
      config.parallel.num_distributed_optimizer_instances = instances;
    };
  };
  expect_no_bit_changes({1, 1, 2, 1}, experts(2, 1));
  expect_no_bit_changes({1, 1, 4, 3}, experts(2, 1));
  expect_no_bit_changes({1, 1, 4, 1}, experts(2, 2));
}

TEST_F(SwapOptimizer, EverySaveHasTheState) {
  const TinyLayout layout{1, 1, 2, 1};
  const std::pair<const char*, Change> ways[] = {
      {"in the foreground", [](auto& config) { config.checkpoint.async_save = false; }},
      {"gathered", [](auto& config) { config.checkpoint.ckpt_gather = true; }},
      {"in every step, two at once",
       [](auto& config) {
         config.checkpoint.save_interval = 1;
         config.checkpoint.ckpt_staging_buffers = 2;
       }},
      {"of what has changed", [](auto& config) { config.checkpoint.ckpt_full_every = 4; }},
      {"after a step that is passed over", [](auto& config) { config.training.iterations_to_skip = {2}; }},
      {"at the end", [](auto& config) { config.checkpoint.save_interval = 0; }},
      {"with an evaluation after each step", [](auto& config) {
         config.data.split = "50,50,0";
         config.training.eval_interval = 1;
         config.training.eval_iters = 1;
       }}};
  for (const auto& [name, way] : ways) {
    SCOPED_TRACE(name);
    const Change change = [&way = way](auto& config) {
      config.training.bf16 = true;
      way(config);
    };
    const std::string folder = std::string("of ") + name;
    expect_same(run(layout, {.swaps = true, .save = folder + "/swapped"}, change),
                run(layout, {.save = folder + "/plain"}, change));
  }
}

TEST_F(SwapOptimizer, ALocalCheckpointBringsTheStateBack) {
  const TinyLayout layout{1, 1, 2, 1};
  const auto local = [&](const std::string& name) -> Change {
    return [=, this](auto& config) {
      config.training.bf16 = true;
      config.checkpoint.save_interval = 3;
      config.checkpoint.non_persistent_ckpt_type = "local";
      config.checkpoint.non_persistent_local_ckpt_dir = folder_ / name;
      config.checkpoint.non_persistent_save_interval = 2;
    };
  };
  run(layout, {.swaps = true, .until = 4, .save = "swapped"}, local("local_swapped"));
  run(layout, {.until = 4, .save = "plain"}, local("local_plain"));
  expect_same(run(layout, {.swaps = true, .until = 6, .save = "swapped", .load = "swapped"}, local("local_swapped")),
              run(layout, {.until = 6, .save = "plain", .load = "plain"}, local("local_plain")));
}

// A disk that is full for one write of one rank: after the step all ranks have the same error, and the checkpoints of
// the steps before are whole.
TEST_F(SwapOptimizer, AFullDiskIsOneErrorOfAllRanksAndTearsNothing) {
  const TinyLayout layout{1, 1, 2, 1};
  run(layout, {.until = 2, .save = "checkpoints"}, [](auto&) {});
  const auto before = test::read_tensors(folder_ / "checkpoints/iter_0000002", TensorRole::kExpAvg);
  const Run how{.swaps = true, .until = 4, .save = "unused", .load = "checkpoints"};
  const Change no_saves = [](auto& config) {
    config.training.bf16 = true;
    config.checkpoint.save.clear();
    config.checkpoint.save_interval = 0;
  };
  int writes = 0;
  {
    const test::FaultInjection none(test::FaultInjection::Kind::kWrite, INT32_MAX, ENOSPC);
    run(layout, how, no_saves);
    writes = none.calls();
    ASSERT_GE(writes, 3 * 2 * 3 * kTimes) << "at the start and in two steps, of each rank's states the chunks";
  }
  for (const int nth : {0, writes / 2, 3 * writes / 4}) {
    SCOPED_TRACE(core::cat("write ", nth, " of ", writes));
    const test::FaultInjection full(test::FaultInjection::Kind::kWrite, nth, ENOSPC);
    try {
      run(layout, how, no_saves);
      ADD_FAILURE() << "the run has ended well";
    } catch (const core::Error& e) {
      EXPECT_EQ(e.code(), core::ErrorCode::kIo);
      for (const std::string word : {"swap: rank ", "No space left", "--swap-dir"})
        EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  }
  EXPECT_TRUE(ckpt::verify_generation(folder_ / "checkpoints/iter_0000002", {}).findings.empty());
  EXPECT_EQ(test::read_tensors(folder_ / "checkpoints/iter_0000002", TensorRole::kExpAvg), before);
}

// A state of which a part is lost is not saved: who would save it gets the error.
TEST_F(SwapOptimizer, AFileThatIsTakenAwayIsNotSaved) {
  core::Arena arena;
  train::SwapTier tier(folder_.path().string(), 0, nullptr);
  train::StateMemory state(arena, {TensorRole::kExpAvg, TensorRole::kExpAvgSq}, 20'000);
  state.swap_to(tier, 5);
  for (size_t i = 0; i < 2; ++i) std::ranges::fill(state.of(i, 0, 20'000), 3.0F);
  state.release(/*is_changed=*/true);
  EXPECT_FALSE(state.whole(0).defined());
  for (const std::string& file : test::nameless_files(folder_.path())) std::filesystem::resize_file(file, 4096);
  try {
    state.hold();
    ADD_FAILURE() << "what was lost is held";
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kCorruptData) << e.what();
  }
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST_F(SwapOptimizer, WhatHasLeftMemoryIsTheSystems) {
  constexpr int64_t kElements = 8 << 20, kStateBytes = 2 * 4 * kElements;
  core::Arena arena;
  train::SwapTier tier(folder_.path().string(), kStateBytes, nullptr);
  train::StateMemory state(arena, {TensorRole::kExpAvg, TensorRole::kExpAvgSq}, kElements);
  state.swap_to(tier, 16);
  for (int round = 0; round < 2; ++round) {
    const int64_t whole = resident_bytes();
    state.release(/*is_changed=*/round == 0);
    EXPECT_LT(resident_bytes(), whole - kStateBytes / 10 * 9);
    state.hold();
    EXPECT_GT(resident_bytes(), whole - kStateBytes / 10);
  }
}

TEST_F(SwapOptimizer, AnUpdateSeesEachElementOnceAndKeepsWhatItWrites) {
  core::Arena arena;
  train::SwapTier tier(folder_.path().string(), 0, nullptr);
  constexpr int64_t kElements = 20'001;
  for (const int64_t times : {1, 2, 3, 4, 16}) {
    train::StateMemory state(arena, {TensorRole::kMaster, TensorRole::kExpAvg}, kElements);
    state.swap_to(tier, times);
    for (int64_t i = 0; i < kElements; ++i) state.of(0, i, i + 1)[0] = static_cast<float>(i);
    state.release(/*is_changed=*/true);
    for (int step = 0; step < 3; ++step) {
      int64_t next = 0;
      state.update([&](layout::FlatRange range) {
        EXPECT_EQ(range.begin, next);
        next = range.end;
        const std::span<float> master = state.of(0, range.begin, range.end);
        for (size_t i = 0; i < master.size(); ++i) {
          ASSERT_EQ(master[i], static_cast<float>(range.begin + static_cast<int64_t>(i) + step));
          master[i] += 1;
        }
        for (float& moment : state.of(1, range.begin, range.end)) moment += 2;
      });
      EXPECT_EQ(next, kElements);
      state.finish_update();
      EXPECT_EQ(arena.current_bytes(MemoryTag::kMaster) + arena.current_bytes(MemoryTag::kOptim), 0);
    }
    state.hold();
    EXPECT_EQ(state.of(0, kElements - 1, kElements)[0], static_cast<float>(kElements - 1 + 3));
    for (const float moment : state.of(1, 0, kElements)) ASSERT_EQ(moment, 6);
    state.release(/*is_changed=*/false);
  }
}

}  // namespace
}  // namespace ms
