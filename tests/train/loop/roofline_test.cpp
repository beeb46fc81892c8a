#include "train/loop/roofline.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

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

// A busy second at the start would make the MFU of the whole run too large.
TEST(Roofline, MeasuredAgainOnlyRisesAndTellsByHowMuch) {
  Roofline roofline(1.0, /*measured=*/true);
  EXPECT_EQ(roofline.measured_again(0.5), "");
  EXPECT_EQ(roofline.tflops(), 1.0);
  EXPECT_EQ(roofline.measured_again(1.01), "") << "noise";
  EXPECT_EQ(roofline.tflops(), 1.01);
  const std::string told = roofline.measured_again(2.02);
  EXPECT_NE(told.find("it was 1.01,"), std::string::npos) << told;
  EXPECT_NE(told.find("too large by 2 x"), std::string::npos) << told;
  EXPECT_EQ(roofline.tflops(), 2.02);

  Roofline given(1.0, /*measured=*/false);
  EXPECT_EQ(given.measured_again(2.0), "");
  EXPECT_EQ(given.tflops(), 1.0);
}

TEST(Roofline, IsMeasuredAgainMoreRarelyAsTheRunGoesOn) {
  std::vector<int64_t> lines;
  for (int64_t line = 1; line <= 40; ++line) {
    if (Roofline(1.0, /*measured=*/true).is_measured_after(line)) lines.push_back(line);
    EXPECT_FALSE(Roofline(1.0, /*measured=*/false).is_measured_after(line));
  }
  EXPECT_EQ(lines, (std::vector<int64_t>{1, 2, 4, 8, 16, 32}));
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
