// Values by hand from megatron/core/optimizer_param_scheduler.py, get_lr.
#include "train/optim/lr_schedule.h"

#include <gtest/gtest.h>

namespace ms::train {
namespace {

TEST(LearningRate, WarmsUpFromInitAndReachesThePeak) {
  const OptimizerConfig optimizer{.lr = 1e-3};
  const SchedulerConfig scheduler{
      .lr_decay_style = "constant", .lr_decay_iters = 100, .lr_warmup_iters = 10, .lr_warmup_init = 1e-4};
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, scheduler, 0), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, scheduler, 5), 5.5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, scheduler, 10), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, scheduler, 1000), 1e-3);
}

TEST(LearningRate, CosineIsHalfwayInTheMiddle) {
  const OptimizerConfig optimizer{.lr = 1e-3, .min_lr = 2e-4};
  const SchedulerConfig scheduler{.lr_decay_style = "cosine", .lr_decay_iters = 110, .lr_warmup_iters = 10};
  EXPECT_NEAR(learning_rate(optimizer, scheduler, 60), 6e-4, 1e-12);
  EXPECT_NEAR(learning_rate(optimizer, scheduler, 110), 2e-4, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, scheduler, 500), 2e-4);
}

TEST(LearningRate, LinearFallsEvenly) {
  const OptimizerConfig optimizer{.lr = 1e-3, .min_lr = 0};
  const SchedulerConfig scheduler{.lr_decay_style = "linear", .lr_decay_iters = 100};
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, scheduler, 0), 1e-3);
  EXPECT_NEAR(learning_rate(optimizer, scheduler, 25), 7.5e-4, 1e-15);
  EXPECT_NEAR(learning_rate(optimizer, scheduler, 100), 0, 1e-15);
}

}  // namespace
}  // namespace ms::train
