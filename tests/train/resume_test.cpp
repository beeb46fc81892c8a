// A run that is stopped and continued equals a run without a stop.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ckpt/reader.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using core::TensorRole;
using test::TinyLayout;

train::RunSummary run(const test::TemporaryFolder& folder, const TinyLayout& layout, int64_t until,
                      const std::string& load, const std::string& save, bool bf16 = false, bool async = true) {
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.train_iters = until;
  config.training.bf16 = bf16;
  config.scheduler.lr_decay_style = "cosine";
  config.scheduler.lr_decay_iters = 20;  // the schedule of the whole run
  config.scheduler.lr_warmup_iters = 3;
  config.checkpoint.save = folder / save;
  config.checkpoint.load = load.empty() ? "" : folder / load;
  config.checkpoint.async_save = async;
  return test::run_on_threads(config, layout.ranks());
}

void expect_same_state(const std::string& a, const std::string& b, bool bf16) {
  for (TensorRole role : {TensorRole::kParam, TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
    const auto left = test::read_tensors(a, role);
    EXPECT_EQ(left.empty(), role == TensorRole::kMaster && !bf16);
    EXPECT_EQ(test::largest_distance(left, test::read_tensors(b, role)), 0) << core::role_name(role);
  }
}

class SameLayout : public testing::TestWithParam<std::tuple<TinyLayout, bool>> {};

TEST_P(SameLayout, TenAndTenStepsEqualTwentyBitForBit) {
  const auto [layout, bf16] = GetParam();
  test::TemporaryFolder folder;
  const auto whole = run(folder, layout, 20, "", "whole", bf16);
  const auto first = run(folder, layout, 10, "", "parts", bf16);
  const auto second = run(folder, layout, 20, "parts", "parts", bf16);
  ASSERT_EQ(second.steps.size(), 10U);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(first.steps[i].loss, whole.steps[i].loss);
    EXPECT_EQ(second.steps[i].loss, whole.steps[10 + i].loss) << "step " << 11 + i;
    EXPECT_EQ(second.steps[i].learning_rate, whole.steps[10 + i].learning_rate);
    EXPECT_EQ(second.steps[i].consumed_train_samples, whole.steps[10 + i].consumed_train_samples);
  }
  expect_same_state(second.checkpoint, whole.checkpoint, bf16);
}

INSTANTIATE_TEST_SUITE_P(
    Table, SameLayout,
    testing::Combine(testing::Values(TinyLayout{1, 1, 1, false, false}, TinyLayout{2, 2, 1, false, true},
                                     TinyLayout{2, 1, 2, true, false}, TinyLayout{1, 2, 2, true, false},
                                     TinyLayout{2, 2, 1, false, true, 2}, TinyLayout{1, 1, 2, 2, false},
                                     TinyLayout{1, 1, 2, 3, false}, TinyLayout{2, 2, 2, 3, true},
                                     TinyLayout{2, 2, 2, 2, true}),
                     testing::Bool()),
    [](const auto& test) { return std::get<0>(test.param).name() + (std::get<1>(test.param) ? "_bf16" : "_fp32"); });

class OtherLayout : public testing::TestWithParam<std::pair<TinyLayout, TinyLayout>> {};

TEST_P(OtherLayout, ContinuesTheUnbrokenRun) {
  const auto [before, after] = GetParam();
  test::TemporaryFolder folder;
  const auto whole = run(folder, {}, 20, "", "whole");
  run(folder, before, 10, "", "parts");
  const auto second = run(folder, after, 20, "parts", "continued");
  ASSERT_EQ(second.steps.size(), 10U);
  for (size_t i = 0; i < 10; ++i)
    EXPECT_NEAR(second.steps[i].loss, whole.steps[10 + i].loss, 1e-5 * whole.steps[10 + i].loss);
  for (TensorRole role : {TensorRole::kParam, TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
    EXPECT_LT(
        test::largest_distance(test::read_tensors(second.checkpoint, role), test::read_tensors(whole.checkpoint, role)),
        1e-3)
        << core::role_name(role);
  }
}

// Each axis grows, shrinks and disappears; virtual stages change too.
const std::vector<std::pair<TinyLayout, TinyLayout>> kPairs = {
    {{2, 1, 1, false, true}, {1, 2, 1, false, false}},
    {{1, 2, 1, false, false}, {1, 1, 2, true, false}},
    {{1, 1, 2, true, false}, {4, 1, 1, false, false}},
    {{4, 1, 1, false, true}, {2, 2, 1, true, true}},
    {{2, 2, 2, true, true}, {1, 1, 1, false, false}},
    {{1, 1, 1, false, false}, {2, 1, 2, true, false}},
    {{1, 1, 4, true, false}, {1, 1, 2, true, false}},
    {{1, 2, 1, false, false, 2}, {1, 2, 1, false, false, 1}},
    {{1, 2, 1, false, false, 1}, {2, 2, 1, false, true, 2}},
    {{1, 2, 2, true, false, 2}, {1, 4, 1, false, false, 1}},
    {{1, 4, 1, false, false, 1}, {1, 2, 2, true, false, 2}},
    {{2, 2, 1, true, true, 2}, {1, 1, 2, false, false, 1}},
    {{1, 1, 1, false, false, 1}, {1, 2, 1, true, false, 2}},
    // Each stage of ZeRO after each, on other numbers of replicas.
    {{1, 1, 1}, {1, 1, 2, 2}},
    {{1, 1, 2, 0}, {1, 1, 4, 2}},
    {{1, 1, 4, 1}, {1, 1, 2, 2}},
    {{1, 1, 4, 2}, {1, 1, 2, 2}},
    {{1, 1, 2, 2}, {1, 1, 4, 1}},
    {{1, 2, 2, 2}, {2, 1, 2, 2, true}},
    {{2, 2, 2, 2, true}, {1, 1, 2, 0}},
    {{1, 1, 4, 2}, {1, 1, 1}},
    {{1, 1, 1}, {1, 1, 4, 3}},
    {{1, 1, 2, 0}, {1, 1, 4, 3}},
    {{1, 1, 4, 1}, {1, 1, 2, 3}},
    {{1, 1, 4, 2}, {1, 1, 2, 3}},
    {{1, 1, 4, 3}, {1, 1, 2, 3}},
    {{1, 1, 2, 3}, {1, 1, 4, 2}},
    {{1, 2, 2, 3}, {2, 1, 2, 3, true}},
    {{2, 2, 2, 3, true}, {1, 1, 2, 0}},
    {{1, 1, 2, 3}, {1, 1, 2, 1}},
    {{1, 1, 4, 3}, {1, 1, 1}},
};

INSTANTIATE_TEST_SUITE_P(Pairs, OtherLayout, testing::ValuesIn(kPairs),
                         [](const auto& test) { return test.param.first.name() + "_to_" + test.param.second.name(); });

// Layouts that only move work continue bit for bit.
TEST(VirtualStages, ResumeIsBitwiseEqual) {
  test::TemporaryFolder folder;
  const auto whole = run(folder, {}, 20, "", "whole");
  run(folder, {1, 2, 1, false, false, 2}, 10, "", "parts");
  const auto second = run(folder, {1, 4, 1, false, false, 1}, 20, "parts", "continued");
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(second.steps[i].loss, whole.steps[10 + i].loss) << "step " << 11 + i;
  expect_same_state(second.checkpoint, whole.checkpoint, false);
}

// --use-tp-pp-dp-mapping: other ranks compute the same, and a run goes on in either order.
TEST(RankOrder, ChangesNoBitAndContinuesTheOther) {
  const TinyLayout layout{2, 2, 2, true, true};
  test::TemporaryFolder folder;
  const auto run_in_order = [&](bool mapped, int64_t until, const std::string& load, const std::string& save) {
    train::TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.parallel.use_tp_pp_dp_mapping = mapped;
    config.training.train_iters = until;
    config.checkpoint.save = folder / save;
    config.checkpoint.load = load.empty() ? "" : folder / load;
    config.checkpoint.ckpt_fully_parallel_save = false;
    return test::run_on_threads(config, layout.ranks());
  };
  // Which rank has written the last stage's part of TP rank 0: the first of its data-parallel group.
  const auto writer_of_last_stage = [](const std::string& checkpoint) {
    const auto source = ckpt::open_native(checkpoint);
    for (size_t shard = 0; shard < source->shards().size(); ++shard) {
      const core::ShardedTensor tensor = source->shards()[shard];
      if (tensor.key == "decoder.final_layernorm.weight" && tensor.role == TensorRole::kParam) {
        return source->describe(static_cast<int32_t>(shard));
      }
    }
    return std::string();
  };
  const auto whole = run_in_order(false, 20, "", "whole");
  const auto mapped = run_in_order(true, 20, "", "mapped");
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(mapped.steps[i].loss, whole.steps[i].loss) << "step " << i + 1;
  expect_same_state(mapped.checkpoint, whole.checkpoint, false);
  EXPECT_NE(writer_of_last_stage(whole.checkpoint).find("rank_00004"), std::string::npos)
      << writer_of_last_stage(whole.checkpoint);
  EXPECT_NE(writer_of_last_stage(mapped.checkpoint).find("rank_00002"), std::string::npos)
      << writer_of_last_stage(mapped.checkpoint);
  EXPECT_EQ(ckpt::open_native(mapped.checkpoint)->info().layout.at("order"), "tp-cp-ep-pp-dp");
  for (const bool first : {false, true}) {
    const std::string parts = first ? "mapped_first" : "mapped_second";
    run_in_order(first, 10, "", parts);
    const auto rest = run_in_order(!first, 20, parts, parts);
    ASSERT_EQ(rest.steps.size(), 10U);
    for (size_t i = 0; i < 10; ++i) EXPECT_EQ(rest.steps[i].loss, whole.steps[10 + i].loss) << "step " << 11 + i;
    expect_same_state(rest.checkpoint, whole.checkpoint, false);
  }
}

TEST(Save, BackgroundAndBlockingSavesWriteTheSameBits) {
  test::TemporaryFolder folder;
  const auto background = run(folder, {2, 1, 1, false, false}, 10, "", "background", true, true);
  const auto foreground = run(folder, {2, 1, 1, false, false}, 10, "", "foreground", true, false);
  expect_same_state(background.checkpoint, foreground.checkpoint, true);
}

TEST(Load, ConvertsPrecision) {
  test::TemporaryFolder folder;
  run(folder, {}, 5, "", "bf16", true);
  const auto as_fp32 = run(folder, {}, 6, "bf16", "fp32", false);  // its fp32 weights are the bf16 run's master weights
  ASSERT_EQ(as_fp32.steps.size(), 1U);
  const auto again = run(folder, {}, 6, "bf16", "bf16", true);
  EXPECT_NEAR(as_fp32.steps[0].loss, again.steps[0].loss, 1e-2 * again.steps[0].loss);
}

TEST(Load, RefusesAnotherModel) {
  test::TemporaryFolder folder;
  run(folder, {}, 1, "", "saved");
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 2;
  config.model.rotary_base = 500000;  // shapes agree, so only the comparison of configurations detects it
  config.checkpoint.load = folder / "saved";
  try {
    test::run_on_threads(config, 1);
    FAIL();
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find("--rotary-base"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace ms
