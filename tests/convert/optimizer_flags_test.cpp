// Optimizer settings from the command line.
#include "convert/optimizer_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "ckpt/optimizer_settings.h"
#include "ckpt/param_schedule.h"
#include "core/error.h"
#include "tests/ckpt/memory_source.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::TensorRole;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OptimizerFlagsTest : public ::testing::Test {
 protected:
  OptimizerFlagsTest() {
    for (const TensorRole role : {TensorRole::kParam, TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
      source_.set("matrix", role, {2, 2}, {1, 2, 3, 4});
      source_.set("vector", role, {2}, {5, 6});
    }
    ckpt::OptimizerGroup decayed, other;
    decayed.lr = other.lr = 3e-4;
    decayed.weight_decay = 0.05;
    other.weight_decay = 0.0;
    decayed.step = other.step = 10;
    decayed.params = {"matrix"};
    other.params = {"vector"};
    ckpt::set_optimizer_groups(source_.state().common, {decayed, other}, true);
  }
  std::vector<ckpt::OptimizerGroup> groups() {
    made_ = with_optimizer_flags(std::make_unique<ckpt::test::MemorySource>(source_), flags_, decisions_, from_flags_);
    return ckpt::optimizer_groups(*made_);
  }
  std::string refusal() {
    const auto thrown = test::thrown_by([&] { groups(); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
    return thrown.text;
  }
  ckpt::test::MemorySource source_;
  OptimizerFlags flags_;
  std::unique_ptr<ckpt::Source> made_;
  std::vector<std::string> decisions_, from_flags_;
};

TEST_F(OptimizerFlagsTest, WithoutFlagsTheSourceIsUnchanged) {
  EXPECT_EQ(groups().size(), 2U);
  EXPECT_EQ(made_->info().common, source_.info().common);
  EXPECT_THAT(decisions_, IsEmpty());
}

TEST_F(OptimizerFlagsTest, ValuesReplaceTheSourcesAndAreReported) {
  flags_.lr = 1e-4;
  flags_.weight_decay = 0.1;
  flags_.adam_beta1 = 0.8;
  const auto made = groups();
  EXPECT_EQ(made[0].lr, 1e-4);
  EXPECT_EQ(made[1].lr, 1e-4);
  EXPECT_EQ(made[0].weight_decay, 0.1);
  EXPECT_EQ(made[1].weight_decay, 0.0) << "the group without decay stays so";
  EXPECT_EQ(made[1].beta1, 0.8);
  EXPECT_THAT(from_flags_,
              ElementsAre(HasSubstr("--adam-beta1 0.8"), HasSubstr("--weight-decay 0.1"), HasSubstr("--lr 0.0001")));
  EXPECT_THAT(decisions_, ElementsAre(HasSubstr("the source has none"), HasSubstr("replaces the source's 0.05"),
                                      HasSubstr("--lr 0.0001 replaces the source's 0.0003")));
}

// Compared with the half-cosine formula in double.
TEST_F(OptimizerFlagsTest, ScheduleStartsAtTheSourcesStep) {
  flags_.lr = 1e-3;
  flags_.min_lr = 1e-4;
  flags_.lr_decay_style = "cosine";
  flags_.lr_decay_iters = 100;
  flags_.lr_warmup_iters = 2;
  flags_.global_batch_size = 8;
  const auto made = groups();
  const nlohmann::json& scheduler = made_->info().common.at("opt_param_scheduler");
  EXPECT_EQ(scheduler.at("num_steps"), 80);
  EXPECT_EQ(scheduler.at("lr_decay_steps"), 800);
  const double share = 0.5 * (std::cos(std::numbers::pi * (80 - 16) / (800 - 16)) + 1);
  EXPECT_NEAR(*made[0].lr, 1e-4 + share * 9e-4, 1e-18);
  EXPECT_EQ(made[0].max_lr, 1e-3);
}

TEST_F(OptimizerFlagsTest, WeightDecayAloneKeepsTheRate) {
  flags_.min_lr = 1e-4;
  flags_.lr_decay_style = "linear";
  flags_.lr_decay_iters = 100;
  flags_.global_batch_size = 8;
  groups();
  source_.state() = made_->info();
  source_.state().common["optimizer"]["groups"][0]["lr"] = 0.125;  // as rounded by the program
  flags_ = {};
  flags_.weight_decay = 0.3;
  const auto made = groups();
  EXPECT_EQ(made[0].lr, 0.125);
  EXPECT_EQ(made[0].weight_decay, 0.3);
  EXPECT_EQ(made_->info().common.at("opt_param_scheduler").at("end_wd"), 0.3);
}

TEST_F(OptimizerFlagsTest, BatchSizeFollowsFromTheCounts) {
  source_.state().common["consumed_train_samples"] = 40;  // in 10 steps
  flags_.lr_decay_style = "linear";
  flags_.min_lr = 0.0;
  flags_.lr_decay_iters = 20;
  EXPECT_NEAR(*groups()[0].lr, 1.5e-4, 1e-18) << "half of the way";
  EXPECT_EQ(made_->info().common.at("opt_param_scheduler").at("lr_decay_steps"), 80);
}

TEST_F(OptimizerFlagsTest, IncompleteScheduleNamesTheMissingFlags) {
  flags_.lr_decay_style = "cosine";
  flags_.global_batch_size = 8;
  EXPECT_THAT(refusal(), HasSubstr("needs its end: --min-lr and --lr-decay-iters"));
  flags_.min_lr = 1e-5;
  flags_.lr_decay_iters = 100;
  flags_.global_batch_size.reset();
  EXPECT_THAT(refusal(), HasSubstr("give --global-batch-size"));
  flags_.global_batch_size = 8;
  flags_.lr_warmup_iters = 100;
  EXPECT_THAT(refusal(), HasSubstr("--lr-warmup-iters must be less than --lr-decay-iters"));
  flags_.lr_warmup_iters.reset();
  flags_.min_lr = 1.0;
  EXPECT_THAT(refusal(), HasSubstr("--min-lr not above --lr"));
}

TEST_F(OptimizerFlagsTest, OutOfRangeValueNamesTheFlag) {
  flags_.adam_beta2 = 1.0;
  EXPECT_THAT(refusal(), HasSubstr("--adam-beta2 1"));
  flags_ = {};
  flags_.lr = -1.0;
  EXPECT_THAT(refusal(), HasSubstr("--lr -1"));
  flags_ = {};
  flags_.lr_decay_style = "WSD";
  EXPECT_THAT(refusal(), HasSubstr("--lr-decay-style WSD"));
}

}  // namespace
}  // namespace ms::convert
