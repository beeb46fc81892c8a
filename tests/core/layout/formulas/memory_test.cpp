// Memory that lasts, by the bytes per parameter of ZeRO; tests/train/plan_test.cpp compares all of it with runs.
#include "core/layout/formulas/memory.h"

#include <gtest/gtest.h>

#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

TrainingStep step_of(int dp, int zero_stage, core::DType dtype) {
  TrainingStep step{.model = test::small_model(64), .dtype = dtype, .seq_length = 16, .num_microbatches = 4};
  step.layout = {.data_parallel_size = dp, .zero_stage = zero_stage};
  return step;
}

int64_t lasting(const StepMemory& memory) { return memory.param + memory.grad + memory.master + memory.optim; }

TEST(StepMemory, TakesZerosBytesAParameter) {
  const auto elements = [](const TrainingStep& step) { return stage_parameters(step, 0).buffer_elems; };
  const TrainingStep fp32 = step_of(1, 0, core::DType::kFp32), bf16 = step_of(4, 0, core::DType::kBf16);
  EXPECT_EQ(lasting(step_memory(fp32, 0)), 16 * elements(fp32));
  EXPECT_EQ(lasting(step_memory(bf16, 0)), 18 * elements(bf16));
  const TrainingStep zero = step_of(4, 1, core::DType::kBf16);
  EXPECT_EQ(lasting(step_memory(zero, 0)), (6 + 12 / 4) * elements(zero));
  TrainingStep shared = zero;
  shared.reuse_fp32_param = true;
  EXPECT_EQ(lasting(step_memory(shared, 0)), 6 * elements(zero) + 10 * elements(zero) / 4);
}

TEST(StepMemory, OfZeroTwoHasItsShareOfGradientsAndTwoUnits) {
  const TrainingStep zero = step_of(4, 2, core::DType::kBf16);
  const StageParameters held = stage_parameters(zero, 0);
  EXPECT_EQ(lasting(step_memory(zero, 0)), (2 + 16 / 4) * held.buffer_elems + 2 * 4 * held.cut.largest_unit());
}

TEST(StepMemory, OfZeroThreeHasItsShareAndTwoUnitsOfBoth) {
  const TrainingStep zero = step_of(4, 3, core::DType::kBf16);
  const StageParameters held = stage_parameters(zero, 0);
  EXPECT_EQ(lasting(step_memory(zero, 0)), 18 * held.buffer_elems / 4 + 2 * (2 + 4) * held.cut.largest_unit());
}

// 1F1B: stage s of p holds the activations of p - s micro-batches.
TEST(StepMemory, EarlierStagesHoldMoreMicrobatches) {
  TrainingStep step = step_of(1, 0, core::DType::kFp32);
  step.layout = {.pipeline_model_parallel_size = 2};
  const int64_t first = step_memory(step, 0).act;
  step.recompute = RecomputePlan({.granularity = "full", .method = "uniform", .num_layers = 1});
  EXPECT_LT(step_memory(step, 0).act, first);
  step.num_microbatches = 1;
  step.recompute = RecomputePlan();
  EXPECT_LT(step_memory(step, 0).act, 0.7 * static_cast<double>(first));
}

TEST(StepMemory, ReductionsReceiveAllButTheOwnPart) {
  const TrainingStep step = step_of(4, 1, core::DType::kBf16);
  EXPECT_EQ(step_memory(step, 0).comm, 3 * 4 * stage_parameters(step, 0).cut.largest_unit() / 4) << "unit by unit";
  EXPECT_EQ(step_memory(step_of(1, 0, core::DType::kFp32), 0).comm, 0);
}

}  // namespace
}  // namespace ms::layout
