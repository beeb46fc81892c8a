#include "train/features/gradient_accumulation_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/thrown.h"
#include "train/config.h"

namespace ms::train {
namespace {

using testing::HasSubstr;

TEST(GradientAccumulationSteps, AreCheckedAgainstTheRanks) {
  const auto check = [](int64_t steps) {
    TrainerConfig config;
    config.training.global_batch_size = 16;
    config.training.micro_batch_size = 2;
    config.training.gradient_accumulation_steps = steps;
    check_feature(gradient_accumulation_steps_feature(), config, 4);
  };
  const auto refused = [&](int64_t steps) { return test::thrown_by([&] { check(steps); }).text; };
  EXPECT_NO_THROW(check(2));
  EXPECT_THAT(refused(4), HasSubstr("--gradient-accumulation-steps 4, but --global-batch-size 16 with "
                                    "--micro-batch-size 2 on 4 data-parallel ranks makes 2"));
  EXPECT_THAT(refused(0), HasSubstr("at least 1"));
}

}  // namespace
}  // namespace ms::train
