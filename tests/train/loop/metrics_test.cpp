// The numbers of steps as text. Lines of whole runs are in trainer_test.cpp.
#include "train/loop/metrics.h"

#include <gtest/gtest.h>

namespace ms::train {
namespace {

StepMetrics step(int64_t iteration, double loss, double seconds) {
  StepMetrics m;
  m.iteration = iteration;
  m.train_iters = 100;
  m.consumed_train_samples = 4 * iteration;
  m.loss = loss;
  m.grad_norm = static_cast<double>(iteration);
  m.learning_rate = 1e-3 * static_cast<double>(iteration);
  m.seconds = seconds;
  m.tokens = 1000;
  m.tflops_per_rank = 0.5 / seconds;
  m.mfu = 0.25 / seconds;
  m.hfu = 0.3 / seconds;
  m.total_peak_bytes = 1'000'000 * (10 - iteration);
  return m;
}

std::string line_of(const LogInterval& interval) {
  std::string text = "what was there";
  interval.write_line(false, text);
  return text;
}

// As in Megatron: 'lm loss' is total_loss_dict / advanced iterations; time and throughput are over all steps.
TEST(LogInterval, LineContainsMeansOfItsSteps) {
  LogInterval interval;
  interval.add(step(1, 5, 1));
  interval.add(step(2, 4, 3));
  EXPECT_EQ(
      line_of(interval),
      "iteration 2/100 | consumed samples: 8 | elapsed time per iteration (ms): 2000.0 | learning rate: 2.000e-03 | "
      "lm loss: 4.50000 | loss scale: 1.0 | grad norm: 2.000 | number of skipped iterations: 0 | number of nan "
      "iterations: 0 | tokens/s: 500 | TFLOP/s/rank: 0.2500 | MFU: 12.5 % | HFU: 15.0 % | peak memory: 9.0 MB");
  interval.clear();
  interval.add(step(3, 2, 1));
  EXPECT_NE(line_of(interval).find("lm loss: 2.00000"), std::string::npos);
  EXPECT_NE(line_of(interval).find("peak memory: 7.0 MB"), std::string::npos);
}

TEST(LogInterval, SaysHowEvenTheLastStepWasDealt) {
  LogInterval interval;
  StepMetrics dealt = step(1, 5, 1);
  dealt.dealt = DealtCost{.slowest = 1.0125, .slowest_in_order = 1.5};
  interval.add(dealt);
  EXPECT_NE(line_of(interval).find(" | slowest replica: 1.012 x the mean (in order 1.500) | peak memory"),
            std::string::npos)
      << line_of(interval);
  std::string json;
  dealt.write_json({}, json);
  EXPECT_NE(json.find("\"slowest replica\":1.0125,\"slowest replica in order\":1.5,"), std::string::npos) << json;
}

TEST(LogInterval, SkippedStepsAreCountedWithoutTheirLoss) {
  LogInterval interval;
  StepMetrics spike = step(2, 50, 1), overflow = step(3, StepMetrics::kNone, 1), passed_over;
  spike.skipped = overflow.skipped = overflow.nan = true;
  passed_over.skipped = passed_over.passed_over = true;
  passed_over.seconds = 1;
  interval.add(spike);
  EXPECT_EQ(line_of(interval).find("lm loss"), std::string::npos) << "no step was applied";
  interval.add(step(1, 3, 1));
  interval.add(overflow);
  interval.add(passed_over);
  const std::string line = line_of(interval);
  EXPECT_NE(line.find("lm loss: 3.00000"), std::string::npos) << line;
  EXPECT_NE(line.find("skipped iterations: 3 | number of nan iterations: 1 | tokens/s: 750 "), std::string::npos)
      << line;
}

TEST(LogInterval, WithoutComputedStepsHasNoSpeed) {
  LogInterval interval;
  StepMetrics passed_over;
  passed_over.skipped = passed_over.passed_over = true;
  passed_over.seconds = 1;
  interval.add(passed_over);
  EXPECT_EQ(line_of(interval).find("tokens/s"), std::string::npos);
}

}  // namespace
}  // namespace ms::train
