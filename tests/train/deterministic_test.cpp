// --deterministic: the number of threads does not change any bit of a training run.
#include <gtest/gtest.h>

#include "tests/support/tiny_run.h"

namespace ms {
namespace {

train::RunSummary run(bool bf16, int threads, bool deterministic = true) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 5;
  config.training.micro_batch_size = 4;
  config.training.bf16 = bf16;
  config.training.threads_per_rank = threads;
  config.training.deterministic = deterministic;
  return test::run_on_threads(config, 1);
}

TEST(Deterministic, ThreadCountChangesNoBit) {
  for (const bool bf16 : {false, true}) {
    const auto one = run(bf16, 1);
    ASSERT_EQ(one.steps.size(), 5u);
    for (const int threads : {2, 3}) {
      const auto more = run(bf16, threads);
      for (size_t i = 0; i < one.steps.size(); ++i) {
        EXPECT_EQ(more.steps[i].loss, one.steps[i].loss) << threads << " threads, step " << i + 1;
        EXPECT_EQ(more.steps[i].grad_norm, one.steps[i].grad_norm) << threads << " threads, step " << i + 1;
      }
    }
    // The sums differ from those of the default kernels by rounding only.
    const auto fast = run(bf16, 2, false);
    EXPECT_NEAR(fast.steps[0].loss, one.steps[0].loss, (bf16 ? 1e-2 : 1e-5) * one.steps[0].loss);
  }
}

}  // namespace
}  // namespace ms
