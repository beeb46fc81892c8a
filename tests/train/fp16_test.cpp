// fp16 training: it learns what fp32 learns, steps that overflow are skipped on all ranks, and stopping and resuming
// changes no bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using core::TensorRole;
using test::TinyLayout;

train::RunSummary run(const test::TemporaryFolder& folder, const TinyLayout& layout, const std::string& save,
                      const std::function<void(train::TrainerConfig&)>& change) {
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.fp16 = true;
  config.training.initial_loss_scale = 4096;
  config.training.train_iters = 20;
  config.checkpoint.save = folder / save;
  change(config);
  return test::run_on_threads(config, layout.ranks());
}

void expect_same_state(const train::RunSummary& a, const train::RunSummary& b) {
  for (TensorRole role : {TensorRole::kParam, TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
    const auto left = test::read_tensors(a.checkpoint, role);
    EXPECT_FALSE(left.empty()) << core::role_name(role);
    EXPECT_EQ(test::largest_distance(left, test::read_tensors(b.checkpoint, role)), 0) << core::role_name(role);
  }
}

TEST(Fp16, LearnsWhatFp32LearnsOnEveryLayout) {
  test::TemporaryFolder folder;
  const auto fp32 = run(folder, {}, "fp32", [](train::TrainerConfig& config) { config.training.fp16 = false; });
  const auto one = run(folder, {}, "one", [](train::TrainerConfig&) {});
  EXPECT_LT(one.steps.back().loss, 0.95 * one.steps.front().loss);
  EXPECT_NE(one.steps.back().loss, fp32.steps.back().loss);
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{2, 1, 1, false, true}, TinyLayout{1, 2, 1, false, false, 2},
                                   TinyLayout{1, 1, 2, true, false}, TinyLayout{2, 2, 2, true, true}}) {
    const auto seen = run(folder, layout, layout.name(), [](train::TrainerConfig&) {});
    for (size_t i = 0; i < seen.steps.size(); ++i) {
      EXPECT_NEAR(seen.steps[i].loss, fp32.steps[i].loss, 0.01 * fp32.steps[i].loss) << layout.name() << " " << i + 1;
      EXPECT_NEAR(seen.steps[i].grad_norm, fp32.steps[i].grad_norm, 0.05 * fp32.steps[i].grad_norm)
          << "unscaled, " << layout.name() << " " << i + 1;
      EXPECT_EQ(seen.steps[i].loss_scale, 4096);
    }
    if (layout.tp == 1 && layout.dp == 1) expect_same_state(seen, one);
  }
}

TEST(Fp16, LossScaleChangesNoUpdate) {
  test::TemporaryFolder folder;
  const auto dynamic = run(folder, {}, "dynamic", [](train::TrainerConfig&) {});
  const auto fixed = run(folder, {}, "fixed", [](train::TrainerConfig& config) { config.training.loss_scale = 4096; });
  expect_same_state(dynamic, fixed);
}

void overflow_at_first(train::TrainerConfig& config) {
  config.training.initial_loss_scale = 4294967296.0;
  config.training.loss_scale_window = 4;
  config.training.hysteresis = 2;
}

TEST(Fp16, OverflowIsSkippedOnAllRanksAndHalvesTheScale) {
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{2, 2, 1, true, true}, TinyLayout{1, 1, 2, true, false}}) {
    test::TemporaryFolder folder;
    const auto summary = run(folder, layout, "save", overflow_at_first);
    const auto& steps = summary.steps;
    EXPECT_TRUE(steps[0].skipped && steps[0].nan) << layout.name();
    EXPECT_EQ(steps[1].loss_scale, 4294967296.0);      // hysteresis 2: the first overflow does not halve
    EXPECT_EQ(steps[2].loss_scale, 4294967296.0 / 2);  // each further one does
    const auto applied = std::count_if(steps.begin(), steps.end(), [](const auto& step) { return !step.skipped; });
    EXPECT_GE(applied, 3) << layout.name() << ": from about 2^21 on it fits";
    EXPECT_LT(steps.back().loss, steps.front().loss) << layout.name();
    for (size_t i = 1; i < steps.size() && steps[i - 1].skipped; ++i) {
      EXPECT_NEAR(steps[i].loss, steps[0].loss, 0.1) << "weights stay: only the samples differ";
    }
  }
}

TEST(Fp16, StopAndResumeChangesNoBit) {
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{2, 1, 2, true, true}}) {
    test::TemporaryFolder folder;
    const auto whole = run(folder, layout, "whole", overflow_at_first);
    run(folder, layout, "parts", [](train::TrainerConfig& config) {
      overflow_at_first(config);
      config.training.exit_interval = 7;  // while steps are being skipped
    });
    const auto second = run(folder, layout, "parts", [&](train::TrainerConfig& config) {
      overflow_at_first(config);
      config.checkpoint.load = folder / "parts";
    });
    ASSERT_EQ(second.steps.size(), 13U);
    for (size_t i = 0; i < 13; ++i) {
      EXPECT_EQ(second.steps[i].loss, whole.steps[7 + i].loss) << "step " << 8 + i;
      EXPECT_EQ(second.steps[i].loss_scale, whole.steps[7 + i].loss_scale) << "step " << 8 + i;
      EXPECT_EQ(second.steps[i].skipped, whole.steps[7 + i].skipped) << "step " << 8 + i;
    }
    expect_same_state(second, whole);
  }
}

}  // namespace
}  // namespace ms
