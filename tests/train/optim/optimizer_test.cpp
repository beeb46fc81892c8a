#include "train/optim/optimizer.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_run.h"

namespace ms {
namespace {

// After one step m = (1 - beta1) g and v = (1 - beta2) g^2 for any g, so m^2 / v = 10 at beta1 0.9, beta2 0.999. A
// beta2 that passed through fp32 is detected: its 1 - beta2 is off by 1.3e-5.
TEST(Optimizer, MomentsDecayByTheConfiguredDoubles) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 1;
  config.optimizer.adam_beta1 = 0.9;
  config.optimizer.adam_beta2 = 0.999;
  config.checkpoint.save = folder / "save";
  const train::RunSummary summary = test::run_on_threads(config, 1);
  const auto exp_avg = test::read_tensors(summary.checkpoint, core::TensorRole::kExpAvg);
  const auto exp_avg_sq = test::read_tensors(summary.checkpoint, core::TensorRole::kExpAvgSq);
  ASSERT_EQ(exp_avg.size(), exp_avg_sq.size());
  size_t compared = 0;
  for (const auto& [name, m] : exp_avg) {
    const std::vector<float>& v = exp_avg_sq.at(name);
    for (size_t i = 0; i < m.size(); ++i) {
      if (v[i] < 1e-25F) continue;  // g^2 loses bits near the smallest normal number
      ASSERT_NEAR(static_cast<double>(m[i]) * m[i] / v[i], 10.0, 5e-6) << name << "[" << i << "]";
      ++compared;
    }
  }
  EXPECT_GT(compared, 10000U);
}

}  // namespace
}  // namespace ms
