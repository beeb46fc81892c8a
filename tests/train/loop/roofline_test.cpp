#include "train/loop/roofline.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_run.h"

namespace ms::train {
namespace {

TEST(Roofline, IsMeasuredInTheRunsDtype) {
  core::ThreadPool pool(1);
  core::Arena arena;
  ops::Context context{pool, arena};
  context.flops = 7;
  for (const core::DType dtype : {core::DType::kFp32, core::DType::kBf16, core::DType::kFp16}) {
    EXPECT_GT(measure_gemm_tflops(context, dtype), 0);
    EXPECT_EQ(context.flops, 7);
  }
}

TEST(Roofline, RisesToAFasterStepAndWarnsOnce) {
  Roofline roofline(1.0, /*measured=*/true);
  EXPECT_EQ(roofline.reached(0.9), "");
  EXPECT_EQ(roofline.tflops(), 1.0);
  EXPECT_NE(roofline.reached(1.25).find("1.25"), std::string::npos);
  EXPECT_EQ(roofline.tflops(), 1.25);
  EXPECT_EQ(roofline.reached(1.5), "");
  EXPECT_EQ(roofline.tflops(), 1.5);
}

TEST(Roofline, GivenByTheUserStaysAndWarnsOnce) {
  Roofline roofline(1.0, /*measured=*/false);
  EXPECT_NE(roofline.reached(1.25).find("--peak-tflops 1"), std::string::npos);
  EXPECT_EQ(roofline.reached(1.5), "");
  EXPECT_EQ(roofline.tflops(), 1.0);
}

TEST(Roofline, MfuNeverExceedsAMeasuredOne) {
  test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 3;
  config.logger.peak_tflops = 0;
  for (const StepMetrics& step : test::run_on_threads(config, 1).steps) {
    EXPECT_GT(step.hfu, 0);
    EXPECT_LE(step.hfu, 1);
    EXPECT_LE(step.mfu, 1);
  }
  config.logger.peak_tflops = 1e-9;
  EXPECT_GT(test::run_on_threads(config, 1).steps.back().mfu, 1);
}

}  // namespace
}  // namespace ms::train
