// Runs whose global batch grows: what each step computes, on every layout and after a resume.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using core::TensorRole;
using test::TinyLayout;

// Steps of 4, 4, 8, 12, 16, 16 and 16 samples; the last three are after the ramp-up of 24 samples.
train::TrainerConfig growing(const test::TemporaryFolder& folder, const TinyLayout& layout = {}) {
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.global_batch_size = 16;
  config.training.rampup_batch_size = {4, 4, 24};
  config.training.train_samples = 76;
  config.scheduler.lr_decay_style = "linear";
  return config;
}

TEST(RampUp, StepsHaveTheSizesOfTheSchedule) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = growing(folder);
  config.logger.metrics_path = folder / "metrics";
  const train::RunSummary summary = test::run_on_threads(config, 1);
  std::vector<int64_t> sizes, consumed;
  for (const train::StepMetrics& step : summary.steps) {
    sizes.push_back(step.global_batch_size);
    consumed.push_back(step.consumed_train_samples);
    EXPECT_EQ(step.tokens, step.global_batch_size * 16);
    // Megatron's scheduler counts the samples of the steps before.
    const auto before = static_cast<double>(step.consumed_train_samples - step.global_batch_size);
    EXPECT_DOUBLE_EQ(step.learning_rate, 3e-3 * (1 - before / 76));
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{4, 4, 8, 12, 16, 16, 16}));
  EXPECT_EQ(consumed, (std::vector<int64_t>{4, 8, 16, 28, 44, 60, 76}));
  std::ifstream file(folder / "metrics");
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::string line;
    ASSERT_TRUE(std::getline(file, line));
    EXPECT_EQ(nlohmann::json::parse(line).at("global batch size"), sizes[i]);
  }
}

// The first steps are those of a run whose batch is constant.
TEST(RampUp, FirstStepsEqualThoseOfAConstantBatch) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = growing(folder);
  config.scheduler.lr_decay_style = "constant";
  const train::RunSummary grown = test::run_on_threads(config, 1);
  config.training.rampup_batch_size.clear();
  config.training.global_batch_size = 4;
  const train::RunSummary constant = test::run_on_threads(config, 1);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(grown.steps[i].loss, constant.steps[i].loss);
  EXPECT_NE(grown.steps[2].loss, constant.steps[2].loss) << "of twice as many samples";
}

TEST(RampUp, IsTheSameOnEveryLayout) {
  std::vector<double> expected;
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{1, 1, 2, true}, TinyLayout{2, 2, 1, true, true},
                                   TinyLayout{1, 2, 2, false, false, 2}}) {
    test::TemporaryFolder folder;
    const train::RunSummary summary = test::run_on_threads(growing(folder, layout), layout.ranks());
    ASSERT_EQ(summary.steps.size(), 7U) << layout.name();
    for (size_t i = 0; i < 7; ++i) {
      if (expected.size() <= i) expected.push_back(summary.steps[i].loss);
      EXPECT_NEAR(summary.steps[i].loss, expected[i], 1e-5 * expected[i]) << layout.name() << " step " << i + 1;
    }
  }
}

// Tied weights collect the embedding's gradient in rows, of which the largest batch has most.
TEST(RampUp, WorksWithTiedEmbeddings) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = growing(folder);
  config.model.untie_embeddings_and_output_weights = false;
  EXPECT_EQ(test::run_on_threads(config, 1).steps.size(), 7U);
}

TEST(RampUp, AContinuedRunEqualsAnUnbrokenOne) {
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{1, 1, 2, true}}) {
    test::TemporaryFolder folder;
    train::TrainerConfig config = growing(folder, layout);
    config.checkpoint.save = folder / "whole";
    const train::RunSummary whole = test::run_on_threads(config, layout.ranks());
    config.checkpoint.save = config.checkpoint.load = folder / "parts";
    config.training.exit_interval = 3;
    test::run_on_threads(config, layout.ranks());
    config.training.exit_interval = 0;
    const train::RunSummary rest = test::run_on_threads(config, layout.ranks());
    ASSERT_EQ(rest.steps.size(), 4U);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(rest.steps[i].global_batch_size, whole.steps[3 + i].global_batch_size);
      EXPECT_EQ(rest.steps[i].loss, whole.steps[3 + i].loss) << layout.name() << " step " << 4 + i;
      EXPECT_EQ(rest.steps[i].learning_rate, whole.steps[3 + i].learning_rate);
    }
    EXPECT_EQ(test::largest_distance(test::read_tensors(rest.checkpoint, TensorRole::kParam),
                                     test::read_tensors(whole.checkpoint, TensorRole::kParam)),
              0);
  }
}

// A run may begin on fewer ranks than it ends on: only sizes still to come must be divisible among them.
TEST(RampUp, SizesThatAreBehindNeedNotFitTheRanks) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = growing(folder);
  config.checkpoint.save = config.checkpoint.load = folder / "saved";
  config.training.exit_interval = 2;
  test::run_on_threads(config, 1);  // to sample 8; the next sizes are 8, 12 and 16
  config.training.exit_interval = 0;
  config.training.micro_batch_size = 4;
  const auto run_on_two = [&] { return test::run_on_threads(config, 2); };
  const test::Thrown thrown = test::thrown_by(run_on_two);
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_NE(thrown.text.find("the batch of 12 samples (from sample 16 on)"), std::string::npos) << thrown.text;
  config.training.micro_batch_size = 2;
  EXPECT_EQ(run_on_two().steps.size(), 5U);
  config.training.micro_batch_size = 4;
  config.checkpoint.load.clear();
  EXPECT_NE(test::thrown_by(run_on_two).text.find("the batch of 4 samples (from sample 0 on)"), std::string::npos);
}

TEST(BatchSizeSteps, SetTheSizesAndTheGlobalBatch) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = growing(folder);
  config.training.rampup_batch_size.clear();
  config.training.global_batch_size = 0;
  config.training.step_batch_size_schedule = {"0:4", "128:8 0.4K:16"};  // from samples 8 and 25 on
  config.training.train_samples = 60;                                   // the last batch is whole
  const train::RunSummary summary = test::run_on_threads(config, 1);
  std::vector<int64_t> sizes;
  for (const train::StepMetrics& step : summary.steps) sizes.push_back(step.global_batch_size);
  EXPECT_EQ(sizes, (std::vector<int64_t>{4, 4, 8, 8, 8, 16, 16}));
  EXPECT_EQ(summary.steps.back().consumed_train_samples, 64);
  config.training.global_batch_size = 16;  // as --print-config prints it
  EXPECT_EQ(test::run_on_threads(config, 1).steps.back().loss, summary.steps.back().loss);

  // By --train-iters the steps are the same; the schedule counts an iteration as a batch of the last size.
  config.training.train_samples = config.scheduler.lr_decay_samples = 0;
  config.training.train_iters = 7;
  const train::RunSummary by_iterations = test::run_on_threads(config, 1);
  ASSERT_EQ(by_iterations.steps.size(), 7U);
  for (size_t i = 0; i < 7; ++i) {
    const train::StepMetrics& step = by_iterations.steps[i];
    EXPECT_EQ(step.global_batch_size, sizes[i]);
    const auto before = static_cast<double>(step.consumed_train_samples - step.global_batch_size);
    EXPECT_DOUBLE_EQ(step.learning_rate, 3e-3 * (1 - before / (7 * 16)));
  }
  EXPECT_EQ(by_iterations.steps[0].loss, summary.steps[0].loss);
}

}  // namespace
}  // namespace ms
