// Compared with Megatron's calculators and update_train_iters, written out as they are there: one step after another.
#include "train/batch_size_schedule.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::train {
namespace {

// RampupBatchsizeNumMicroBatchesCalculator.update of core 0.13.
int64_t megatrons_ramp_up(const std::array<int64_t, 3>& values, int64_t global_batch_size, int64_t consumed) {
  const auto [start, increment, samples] = values;
  if (consumed > samples) return global_batch_size;
  const int64_t num_increments = (global_batch_size - start) / increment;
  const double samples_per_increment = static_cast<double>(samples) / static_cast<double>(num_increments);
  return start + static_cast<int64_t>(static_cast<double>(consumed) / samples_per_increment) * increment;
}

using SizeAt = std::function<int64_t(int64_t consumed)>;

// update_train_iters of core 0.13.
int64_t megatrons_iterations(const SizeAt& size_at, int64_t ramp_samples, int64_t last, int64_t train_samples) {
  int64_t iterations = 0, consumed = 0;
  while (consumed <= ramp_samples && consumed <= train_samples) {
    consumed += size_at(consumed);
    ++iterations;
  }
  if (train_samples > consumed) iterations += (train_samples - consumed) / last;
  return iterations;
}

// The schedule's walk over sizes against steps taken one by one.
void expect_same_walk(const BatchSizeSchedule& schedule, const SizeAt& size_at, int64_t iterations) {
  int64_t consumed = 0;
  for (int64_t i = 0; i <= iterations; ++i) {
    ASSERT_EQ(schedule.at(consumed), size_at(consumed)) << "step " << i << " at sample " << consumed;
    ASSERT_EQ(schedule.samples_of(i), consumed);
    consumed += size_at(consumed);
  }
}

TEST(RampUp, HasMegatronsSizesAndIterations) {
  const std::vector<std::pair<std::array<int64_t, 3>, int64_t>> cases = {
      {{2, 2, 24}, 8}, {{16, 8, 3000}, 1024}, {{1, 1, 7}, 4},      {{1, 3, 1000}, 31},
      {{4, 4, 1}, 64}, {{3, 7, 997}, 199},    {{32, 32, 977}, 64}, {{1, 1, 49}, 50}};
  for (const auto& [values, global] : cases) {
    SCOPED_TRACE(core::cat(values[0], " ", values[1], " ", values[2], " to ", global));
    const SizeAt size_at = [&](int64_t consumed) { return megatrons_ramp_up(values, global, consumed); };
    const BatchSizeSchedule schedule = BatchSizeSchedule::ramp_up(values, global);
    EXPECT_EQ(schedule.largest(), global);
    for (int64_t consumed = 0; consumed < values[2] + 10; ++consumed) {
      ASSERT_EQ(schedule.at(consumed), size_at(consumed)) << "at sample " << consumed;
    }
    for (const int64_t samples : {int64_t{1}, values[2] - 1, values[2], values[2] + 1, 2 * values[2] + 5 * global}) {
      EXPECT_EQ(schedule.iterations(samples),
                samples <= 0 ? 0 : megatrons_iterations(size_at, values[2], global, samples))
          << samples << " samples";
    }
    expect_same_walk(schedule, size_at, 60);
  }
}

TEST(RampUp, LongRunsAreCountedWithoutSteppingThroughThem) {
  const BatchSizeSchedule schedule = BatchSizeSchedule::ramp_up(std::array<int64_t, 3>{16, 16, 5859375}, 1536);
  const SizeAt size_at = [](int64_t consumed) { return megatrons_ramp_up({16, 16, 5859375}, 1536, consumed); };
  EXPECT_EQ(schedule.iterations(146484375), megatrons_iterations(size_at, 5859375, 1536, 146484375));
  const int64_t iterations = schedule.iterations(int64_t{1} << 52);
  EXPECT_LE(schedule.samples_of(iterations), int64_t{1} << 52);
  EXPECT_GT(schedule.samples_of(iterations + 1), int64_t{1} << 52);
}

TEST(RampUp, RefusesWhatDoesNotFit) {
  const auto refusal = [](std::vector<int64_t> values, int64_t global) {
    const test::Thrown thrown = test::thrown_by([&] { BatchSizeSchedule::ramp_up(values, global); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
    EXPECT_EQ(thrown.text.rfind("--rampup-batch-size", 0), 0U) << thrown.text;
    return thrown.text;
  };
  EXPECT_NE(refusal({16, 8}, 64).find("three numbers"), std::string::npos);
  EXPECT_NE(refusal({0, 8, 100}, 64).find("positive"), std::string::npos);
  EXPECT_NE(refusal({8, -8, 100}, 64).find("positive"), std::string::npos);
  EXPECT_NE(refusal({8, 8, 0}, 64).find("positive"), std::string::npos);
  EXPECT_NE(refusal({8, 8, INT64_MAX}, 64).find("at most"), std::string::npos);
  EXPECT_NE(refusal({64, 8, 100}, 64).find("below --global-batch-size 64"), std::string::npos);
  EXPECT_NE(refusal({16, 9, 100}, 64).find("48 is not a multiple"), std::string::npos);
  EXPECT_NE(refusal({1, 1, 100}, INT32_MAX).find("increments"), std::string::npos);
}

// StepBatchsizeNumMicroBatchesCalculator._get_batch_size_for_samples.
TEST(BySteps, HasMegatronsSizesAndIterations) {
  const std::vector<std::pair<int64_t, int64_t>> entries = {{0, 16}, {1171875, 320}, {2343750, 624}, {3515625, 928}};
  const SizeAt size_at = [&](int64_t consumed) {
    int64_t size = entries[0].second;
    for (const auto& [threshold, batch] : entries) {
      if (consumed < threshold) break;
      size = batch;
    }
    return size;
  };
  // Megatron's example; entries in any order, and with ',' between them.
  for (const char* text : {"0:16 2.4B:320 4.8B:624 7.2B:928", " 7.2b:928,0:16,\t2400M:320 4.8e9:624 "}) {
    const BatchSizeSchedule schedule = BatchSizeSchedule::by_steps(text, 2048);
    EXPECT_EQ(schedule.largest(), 928);
    for (const auto& [threshold, batch] : entries) {
      EXPECT_EQ(schedule.at(threshold), batch) << text;
      if (threshold > 0) {
        EXPECT_EQ(schedule.at(threshold - 1), size_at(threshold - 1)) << text;
      }
    }
    // update_train_iters: until all samples are consumed.
    for (const int64_t samples : {int64_t{1}, int64_t{16}, int64_t{17}, int64_t{1171875}, int64_t{5000000}}) {
      int64_t iterations = 0;
      for (int64_t consumed = 0; consumed < samples; ++iterations) consumed += size_at(consumed);
      EXPECT_EQ(schedule.iterations(samples), iterations) << samples << " samples";
    }
  }
  const BatchSizeSchedule schedule = BatchSizeSchedule::by_steps("0:2 100:3 350:5 1K:5 2K:0.02K", 10);
  expect_same_walk(
      schedule, [&](int64_t c) { return c < 10    ? 2
                                        : c < 35  ? 3
                                        : c < 200 ? 5
                                                  : 20; }, 80);
}

TEST(BySteps, RefusesWhatDoesNotFit) {
  const auto refusal = [](const char* text, int64_t seq_length = 2) {
    const test::Thrown thrown = test::thrown_by([&] { BatchSizeSchedule::by_steps(text, seq_length); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument) << text;
    EXPECT_EQ(thrown.text.rfind("--step-batch-size-schedule", 0), 0U) << thrown.text;
    return thrown.text;
  };
  for (const char* text : {"", " ", "8:4", "4:8 1K:16"}) {
    EXPECT_NE(refusal(text).find("the first entry must be 0:BATCH"), std::string::npos) << text;
  }
  for (const char* text : {"0", "0:", ":4", "0:x", "0:4 K:8", "0:4 1X:8", "0:4 -1:8", "0:4 nan:8", "0:4 infT:8",
                           "0:4:5", "0:4 0x10:8", "0:4 1e300T:8"}) {
    EXPECT_NE(refusal(text).find("expected TOKENS:BATCH"), std::string::npos) << text;
  }
  EXPECT_NE(refusal("0:0").find("a batch has 1 to"), std::string::npos);
  EXPECT_NE(refusal("0:3B").find("a batch has 1 to"), std::string::npos);
  EXPECT_NE(refusal("0:1 8000000T:2", 1).find("at most"), std::string::npos);
  EXPECT_NE(refusal("0:4 9:8 8:8").find("two entries begin at sample 4"), std::string::npos);
  EXPECT_NE(refusal("0:4 8:2").find("only grow"), std::string::npos);
  EXPECT_NE(refusal("0:4", 0).find("--seq-length"), std::string::npos);
}

TEST(EachSize, LeavesOutSizesThatAStepJumpsOver) {
  // 2 from sample 0, 4 from 2, 6 from 4, 8 from 6: steps begin at samples 0, 2, 6.
  const BatchSizeSchedule schedule = BatchSizeSchedule::ramp_up(std::array<int64_t, 3>{2, 2, 6}, 8);
  std::vector<int64_t> sizes, begins;
  schedule.each_size(0, [&](int64_t size, int64_t consumed, int64_t) {
    sizes.push_back(size);
    begins.push_back(consumed);
    return true;
  });
  EXPECT_EQ(sizes, (std::vector<int64_t>{2, 4, 8}));
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 2, 6}));
}

TEST(Constant, CountsWholeBatches) {
  const BatchSizeSchedule schedule(8);
  EXPECT_EQ(schedule.at(12345), 8);
  EXPECT_EQ(schedule.iterations(203), 25);
  EXPECT_EQ(schedule.iterations(7), 0);
  EXPECT_EQ(schedule.samples_of(25), 200);
}

}  // namespace
}  // namespace ms::train
