// SGD: what it computes, what a checkpoint has of it, and that runs continue from it on any layout.
#include "train/optim/update_rule.h"

#include <gtest/gtest.h>

#include "ckpt/execute.h"
#include "ckpt/reader.h"
#include "ckpt/reshard.h"
#include "ckpt/resume_diff.h"
#include "ckpt/verify.h"
#include "convert/convert.h"
#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using core::TensorRole;
using test::TinyLayout;
using Tensors = std::map<std::string, std::vector<float>>;

train::TrainerConfig sgd_config(const test::TemporaryFolder& folder, const TinyLayout& layout, int64_t steps) {
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.optimizer.optimizer = "sgd";
  config.optimizer.lr = 0.1;
  config.training.train_iters = steps;
  return config;
}

std::string run(train::TrainerConfig config, const TinyLayout& layout, const std::string& save,
                const std::string& load = "") {
  config.checkpoint.save = save;
  config.checkpoint.load = load;
  return test::run_on_threads(config, layout.ranks()).checkpoint;
}

std::vector<TensorRole> roles_of(const std::string& checkpoint) {
  const auto source = ckpt::open_native(checkpoint);
  std::vector<TensorRole> roles;
  for (const TensorRole role : core::kOptimizerRoles) {
    if (ckpt::has_role(*source, role)) roles.push_back(role);
  }
  return roles;
}

// A first step: the moment is the gradient with weight decay, and the weight moves by lr x moment.
TEST(Sgd, MovesByItsMoment) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = sgd_config(folder, {}, 1);
  config.optimizer.weight_decay = 0.5;
  config.optimizer.clip_grad = 0;
  const std::string after = run(config, {}, folder / "after");
  config.optimizer.weight_decay = 0;
  const std::string undecayed = run(config, {}, folder / "undecayed");
  config.optimizer.lr = 1e-30;
  const Tensors start = test::read_tensors(run(config, {}, folder / "start"), TensorRole::kParam);
  const Tensors weights = test::read_tensors(after, TensorRole::kParam);
  const Tensors moments = test::read_tensors(after, TensorRole::kMomentumBuffer);
  const Tensors gradients = test::read_tensors(undecayed, TensorRole::kMomentumBuffer);
  ASSERT_EQ(moments.size(), weights.size());
  for (const auto& [name, values] : weights) {
    const bool decays = name.find("norm") == std::string::npos;
    for (size_t i = 0; i < values.size(); ++i) {
      const float weight = start.at(name)[i], moment = moments.at(name)[i];
      ASSERT_NEAR(values[i], weight - 0.1F * moment, 1e-6) << name;
      ASSERT_NEAR(moment, gradients.at(name)[i] + (decays ? 0.5F * weight : 0), 1e-6) << name;
    }
  }
}

TEST(Sgd, KeepsOneMomentAndWithoutMomentumNone) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = sgd_config(folder, {}, 1);
  config.training.bf16 = true;
  EXPECT_EQ(roles_of(run(config, {}, folder / "momentum")),
            (std::vector{TensorRole::kMaster, TensorRole::kMomentumBuffer}));
  config.optimizer.sgd_momentum = 0;
  EXPECT_EQ(roles_of(run(config, {}, folder / "none")), std::vector{TensorRole::kMaster});
}

class SgdResume : public testing::TestWithParam<std::tuple<TinyLayout, bool>> {};

TEST_P(SgdResume, FiveAndFiveStepsEqualTenBitForBit) {
  const auto& [layout, bf16] = GetParam();
  const test::TemporaryFolder folder;
  train::TrainerConfig config = sgd_config(folder, layout, 10);
  config.training.bf16 = bf16;
  const std::string whole = run(config, layout, folder / "whole");
  config.training.exit_interval = 5;
  run(config, layout, folder / "parts");
  const std::string parts = run(config, layout, folder / "parts", folder / "parts");
  for (const TensorRole role : {TensorRole::kParam, TensorRole::kMaster, TensorRole::kMomentumBuffer}) {
    const Tensors a = test::read_tensors(whole, role);
    EXPECT_EQ(a.empty(), role == TensorRole::kMaster && !bf16);
    EXPECT_EQ(test::largest_distance(test::read_tensors(parts, role), a), 0) << core::role_name(role);
  }
  const auto a = ckpt::open_native(whole), b = ckpt::open_native(parts);
  EXPECT_EQ(ckpt::diff_resume(*a, *b).verdict, ckpt::ResumeVerdict::kContinuesExactly);
}

INSTANTIATE_TEST_SUITE_P(
    Table, SgdResume,
    testing::Combine(testing::Values(TinyLayout{}, TinyLayout{2, 2, 1, false, true}, TinyLayout{1, 2, 2, true}),
                     testing::Bool()),
    [](const auto& test) { return std::get<0>(test.param).name() + (std::get<1>(test.param) ? "_bf16" : "_fp32"); });

TEST(Sgd, ContinuesOnAnotherLayout) {
  const test::TemporaryFolder folder;
  const Tensors whole = test::read_tensors(run(sgd_config(folder, {}, 10), {}, folder / "whole"), TensorRole::kParam);
  train::TrainerConfig first = sgd_config(folder, {2, 1, 2, true, true}, 10);
  first.training.exit_interval = 5;
  run(first, {2, 1, 2, true, true}, folder / "parts");
  const TinyLayout other{1, 2, 2, true};
  const std::string second = run(sgd_config(folder, other, 10), other, folder / "continued", folder / "parts");
  EXPECT_LT(test::largest_distance(test::read_tensors(second, TensorRole::kParam), whole), 1e-4);
}

// msckpt reshard, verify and diff.
TEST(Sgd, CheckpointIsReshardedAndVerified) {
  const test::TemporaryFolder folder;
  const TinyLayout layout{2, 1, 2, true, true};
  const std::string checkpoint = run(sgd_config(folder, layout, 2), layout, folder / "save");
  ckpt::ReshardOptions options;
  const auto source = ckpt::open_native(checkpoint);
  const ckpt::ReshardPlan plan =
      ckpt::plan_reshard(*source, {.pipeline_model_parallel_size = 2, .data_parallel_size = 1}, options);
  size_t moments = 0;
  for (size_t i = 0; i < plan.targets.shards.size(); ++i) {
    moments += plan.targets.shards[i].role == TensorRole::kMomentumBuffer ? 1 : 0;
  }
  EXPECT_GT(moments, 0U);
}

TEST(Sgd, StateOfTheOtherOptimizerIsRefusedByName) {
  const test::TemporaryFolder folder;
  run(sgd_config(folder, {}, 1), {}, folder / "sgd");
  train::TrainerConfig adam = test::tiny_config(folder.path());
  adam.training.train_iters = 2;
  const test::Thrown thrown = test::thrown_by([&] { run(adam, {}, folder / "adam", folder / "sgd"); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  for (const char* part : {"momentum_buffer", "--optimizer adam", "exp_avg", "--no-load-optim"}) {
    EXPECT_NE(thrown.text.find(part), std::string::npos) << part << ": " << thrown.text;
  }
  adam.checkpoint.load_optim = false;
  EXPECT_NO_THROW(run(adam, {}, folder / "adam", folder / "sgd"));
}

TEST(Sgd, FormatsWithoutAPlaceForItsMomentSayHowToLeaveItOut) {
  const test::TemporaryFolder folder;
  convert::ConvertOptions options;
  options.load_dir = run(sgd_config(folder, {}, 1), {}, folder / "sgd");
  for (const convert::Format format :
       {convert::Format::kHuggingFace, convert::Format::kMegatron, convert::Format::kDcp}) {
    options.save_dir = folder / core::cat("to", static_cast<int>(format));
    options.save_model_type = format;
    options.drop_optimizer = false;
    const test::Thrown thrown = test::thrown_by([&] { convert::convert_checkpoint(options); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported) << static_cast<int>(format);
    EXPECT_NE(thrown.text.find("momentum_buffer"), std::string::npos) << thrown.text;
    EXPECT_NE(thrown.text.find("--drop-optimizer"), std::string::npos) << thrown.text;
    options.drop_optimizer = true;
    EXPECT_NO_THROW(convert::convert_checkpoint(options)) << static_cast<int>(format);
  }
}

}  // namespace
}  // namespace ms
