// Steps that are not applied, and runs that end early: their effect on state, on any layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "ckpt/reader.h"
#include "core/error.h"
#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using core::TensorRole;
using test::TinyLayout;

const std::vector<TinyLayout> kLayouts = {{}, {2, 2, 1, true, true}, {1, 1, 2, true, false}};

train::RunSummary run(const test::TemporaryFolder& folder, const TinyLayout& layout, const std::string& save,
                      const std::function<void(train::TrainerConfig&)>& change) {
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.train_iters = 12;
  config.checkpoint.save = folder / save;
  change(config);
  return test::run_on_threads(config, layout.ranks());
}

double weights_apart(const train::RunSummary& a, const train::RunSummary& b) {
  return test::largest_distance(test::read_tensors(a.checkpoint, TensorRole::kParam),
                                test::read_tensors(b.checkpoint, TensorRole::kParam));
}

// The first update makes the weights so large that every later loss is infinite or NaN.
void blow_up(train::TrainerConfig& config) {
  config.optimizer.lr = 1e30;
  config.training.train_iters = 4;
}

TEST(Nan, EndsTheRunOnAllRanksNamingTheIteration) {
  for (const TinyLayout& layout : kLayouts) {
    test::TemporaryFolder folder;
    try {
      run(folder, layout, "save", blow_up);
      FAIL() << layout.name();
    } catch (const core::Error& e) {
      EXPECT_EQ(e.code(), core::ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find("iteration 2"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("--no-check-for-nan-in-loss-and-grad"), std::string::npos) << e.what();
    }
  }
}

TEST(Nan, IsSkippedOnAllRanksWhenNotChecked) {
  for (const TinyLayout& layout : kLayouts) {
    test::TemporaryFolder folder;
    const auto first = run(folder, layout, "first", [](train::TrainerConfig& config) {
      blow_up(config);
      config.training.train_iters = 1;
    });
    const auto skipped = run(folder, layout, "skipped", [](train::TrainerConfig& config) {
      blow_up(config);
      config.training.check_for_nan_in_loss_and_grad = false;
    });
    ASSERT_EQ(skipped.steps.size(), 4U);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(skipped.steps[i].skipped, i > 0) << layout.name() << " step " << i + 1;
      EXPECT_EQ(skipped.steps[i].nan, i > 0) << layout.name() << " step " << i + 1;
    }
    EXPECT_EQ(weights_apart(skipped, first), 0) << layout.name();
  }
}

// Without the check, endless NaN steps still end the run: the weights do not change, so neither do the losses. A loss
// scale that can still fall is waited for.
TEST(Nan, EndlessOnesEndTheRunEvenWhenNotChecked) {
  for (const TinyLayout& layout : kLayouts) {
    for (const bool fp16 : {false, true}) {
      test::TemporaryFolder folder;
      const test::Thrown thrown = test::thrown_by([&] {
        run(folder, layout, "save", [&](train::TrainerConfig& config) {
          blow_up(config);
          config.training.train_iters = 1000;
          config.training.check_for_nan_in_loss_and_grad = false;
          config.training.fp16 = fp16;
          config.training.initial_loss_scale = 4;
          config.training.min_loss_scale = 1;
          config.training.hysteresis = 1;
        });
      });
      EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument) << layout.name();
      // The first step is good. With fp16, steps at loss scales 4 and 2 do not count: the scale can still fall.
      EXPECT_NE(thrown.text.find(fp16 ? "iteration 103: " : "iteration 101: "), std::string::npos) << thrown.text;
      EXPECT_NE(thrown.text.find("each of the last 100 steps"), std::string::npos) << thrown.text;
    }
  }
}

TEST(IterationsToSkip, ConsumesTheirSamples) {
  test::TemporaryFolder folder;
  const auto plain = run(folder, {}, "plain", [](train::TrainerConfig& config) { config.training.train_iters = 1; });
  const auto skipped = run(folder, {}, "skipped", [](train::TrainerConfig& config) {
    config.training.train_iters = 3;
    config.training.iterations_to_skip = {2, 3};
  });
  EXPECT_TRUE(skipped.steps[1].skipped && skipped.steps[2].skipped);
  EXPECT_EQ(skipped.steps[2].consumed_train_samples, 12);
  EXPECT_EQ(weights_apart(skipped, plain), 0);
  // The run continues with the samples after the skipped ones, and with the schedule unchanged.
  const auto whole = run(folder, {}, "whole", [](train::TrainerConfig& config) {
    config.training.train_iters = 4;
    config.training.iterations_to_skip = {2, 3};
    config.scheduler.lr_decay_style = "linear";
    config.scheduler.lr_decay_iters = 4;
  });
  EXPECT_DOUBLE_EQ(whole.steps[3].learning_rate, 3e-3 * 0.75);
  EXPECT_EQ(whole.steps[3].consumed_train_samples, 16);
}

void watch_spikes(train::TrainerConfig& config) {
  config.training.spike_skip_factor = 1.2;
  config.training.spike_skip_window = 3;
}

TEST(Spikes, AreSkippedEquallyOnEveryLayoutAndAfterAResume) {
  std::vector<bool> expected;
  for (const TinyLayout& layout : kLayouts) {
    test::TemporaryFolder folder;
    const auto whole = run(folder, layout, "whole", watch_spikes);
    std::vector<bool> skipped;
    for (const auto& step : whole.steps) skipped.push_back(step.skipped);
    EXPECT_GT(std::count(skipped.begin(), skipped.end(), true), 0) << "the factor is small enough for some";
    EXPECT_GT(std::count(skipped.begin(), skipped.end(), false), 3);
    if (expected.empty()) expected = skipped;
    EXPECT_EQ(skipped, expected) << layout.name();
    run(folder, layout, "parts", [](train::TrainerConfig& config) {
      watch_spikes(config);
      config.training.exit_interval = 5;
    });
    const auto second = run(folder, layout, "parts", [&](train::TrainerConfig& config) {
      watch_spikes(config);
      config.checkpoint.load = folder / "parts";
    });
    ASSERT_EQ(second.steps.size(), 7U);
    for (size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(second.steps[i].loss, whole.steps[5 + i].loss) << layout.name() << " step " << 6 + i;
      EXPECT_EQ(second.steps[i].skipped, skipped[5 + i]) << layout.name() << " step " << 6 + i;
    }
    EXPECT_EQ(weights_apart(second, whole), 0);
  }
}

TEST(Spikes, AFullWindowEndsTheRun) {
  for (const TinyLayout& layout : kLayouts) {
    test::TemporaryFolder folder;
    const test::Thrown thrown = test::thrown_by([&] {
      run(folder, layout, "save", [](train::TrainerConfig& config) {
        config.training.spike_skip_factor = 1.000001;
        config.training.spike_skip_window = 1;  // a step is skipped if it is worse than the one before
      });
    });
    EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument) << layout.name();
    EXPECT_NE(thrown.text.find("--spike-skip-window"), std::string::npos) << thrown.text;
  }
}

// A checkpoint with one number changed.
class Edited final : public ckpt::Source {
 public:
  Edited(std::unique_ptr<ckpt::Source> source, const nlohmann::json& change)
      : source_(std::move(source)), info_(source_->info()) {
    info_.common.merge_patch(change);
  }
  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return source_->shards(); }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    source_->read(shard, offset, extent, out);
  }
  std::string describe(int32_t shard) const override { return source_->describe(shard); }

 private:
  std::unique_ptr<ckpt::Source> source_;
  ckpt::CheckpointInfo info_;
};

TEST(Resume, RefusesInvalidCounts) {
  test::TemporaryFolder folder;
  run(folder, {}, "save", [](train::TrainerConfig& config) { config.training.train_iters = 1; });
  const auto resume = [&](const char* change) {
    train::TrainerConfig config = test::tiny_config(folder.path());
    config.training.train_iters = 2;
    config.checkpoint.load = folder / "save";
    return test::run_on_threads(config, 1, [&](const auto& path, int64_t) {
      return std::make_unique<Edited>(ckpt::open_native(path), nlohmann::json::parse(change));
    });
  };
  EXPECT_EQ(resume("{}").steps.size(), 1U);
  for (const char* change : {R"({"step": -1})", R"({"step": 1e300})", R"({"consumed_train_samples": -4})",
                             R"({"skipped_train_samples": "none"})", R"({"opt_param_scheduler": {"num_steps": -1}})"}) {
    EXPECT_EQ(test::code_of([&] { resume(change); }), core::ErrorCode::kCorruptData) << change;
  }
}

TEST(ExitInterval, SavesAndEndsAtMultiples) {
  test::TemporaryFolder folder;
  const auto change = [&](train::TrainerConfig& config) {
    config.training.exit_interval = 5;
    config.checkpoint.save_interval = 4;
    config.checkpoint.load = folder / "save";
  };
  const auto first = run(folder, {}, "save", change);
  EXPECT_EQ(first.steps.size(), 5U);
  EXPECT_NE(first.exit_reason.find("--exit-interval 5"), std::string::npos);
  EXPECT_NE(first.checkpoint.find("iter_0000005"), std::string::npos) << first.checkpoint;
  const auto second = run(folder, {}, "save", change);
  EXPECT_EQ(second.steps.back().iteration, 10);
  const auto third = run(folder, {}, "save", change);
  EXPECT_EQ(third.steps.back().iteration, 12);
  EXPECT_EQ(third.exit_reason, "");
}

TEST(ExitDuration, SavesAndEndsOnAllRanks) {
  test::TemporaryFolder folder;
  const auto summary = run(folder, {1, 2, 2, true, false}, "save",
                           [](train::TrainerConfig& config) { config.training.exit_duration_in_mins = 1e-9; });
  EXPECT_EQ(summary.steps.size(), 1U);
  EXPECT_NE(summary.exit_reason.find("--exit-duration-in-mins"), std::string::npos);
  EXPECT_NE(summary.checkpoint.find("iter_0000001"), std::string::npos) << summary.checkpoint;
}

TEST(Schedule, ChangedEndIsRefusedOrOverridden) {
  test::TemporaryFolder folder;
  const auto run_until = [&](int64_t iters, bool load, bool override_saved, bool use_checkpoint) {
    return run(folder, {}, "save", [&](train::TrainerConfig& config) {
      config.training.train_iters = iters;
      config.scheduler.lr_decay_style = "linear";
      config.scheduler.override_opt_param_scheduler = override_saved;
      config.scheduler.use_checkpoint_opt_param_scheduler = use_checkpoint;
      if (load) config.checkpoint.load = folder / "save";
    });
  };
  run_until(2, false, false, false);
  EXPECT_THROW(run_until(4, true, false, false), core::Error);
  EXPECT_DOUBLE_EQ(run_until(4, true, true, false).steps[0].learning_rate, 3e-3 * 0.5);
  EXPECT_DOUBLE_EQ(run_until(5, true, false, true).steps[0].learning_rate, 0);  // the end of a schedule of 4
}

}  // namespace
}  // namespace ms
