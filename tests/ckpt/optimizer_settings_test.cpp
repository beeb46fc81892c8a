// Optimizer groups: stored ones, and those derived from what mstrain and Megatron write.
#include "ckpt/optimizer_settings.h"

#include <gtest/gtest.h>

#include "ckpt/param_schedule.h"
#include "core/error.h"
#include "tests/ckpt/memory_source.h"
#include "tests/support/thrown.h"

namespace ms::ckpt {
namespace {

using core::TensorRole;
using nlohmann::json;

test::MemorySource model() {
  test::MemorySource source;
  for (const TensorRole role : {TensorRole::kParam, TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
    source.set("matrix", role, {2, 2}, {1, 2, 3, 4});
    source.set("vector", role, {2}, {5, 6});
    source.set("other", role, {1, 2}, {7, 8});
  }
  return source;
}

OptimizerGroup group(double weight_decay, std::vector<std::string> params) {
  OptimizerGroup made;
  made.lr = 3e-4;
  made.beta1 = 0.8;
  made.beta2 = 0.97;
  made.eps = 1e-8;
  made.weight_decay = weight_decay;
  made.step = 5;
  made.options = {{"amsgrad", false}, {"foreach", nullptr}};
  made.params = std::move(params);
  return made;
}

TEST(OptimizerSettings, GroupsRoundTripAndLargestOmitsParams) {
  test::MemorySource source = model();
  const std::vector<OptimizerGroup> written = {group(0.05, {"matrix", "other"}), group(0.0, {"vector"})};
  set_optimizer_groups(source.state().common, written, /*complete=*/true);
  EXPECT_FALSE(source.info().common["optimizer"]["groups"][0].contains("params"));
  source.state().common = json::parse(source.info().common.dump());  // as if read from a manifest
  const std::vector<OptimizerGroup> read = optimizer_groups(source);
  ASSERT_EQ(read.size(), 2U);
  EXPECT_TRUE(same_settings(read[0], written[0]));
  EXPECT_TRUE(same_settings(read[1], written[1]));
  EXPECT_EQ(group_of(read, "matrix"), &read[0]);
  EXPECT_EQ(group_of(read, "other"), &read[0]);
  EXPECT_EQ(group_of(read, "vector"), &read[1]);
  EXPECT_EQ(source.info().common["step"], 5);
  EXPECT_EQ(source.info().common["config"]["optimizer"]["adam_beta2"], 0.97);
}

TEST(OptimizerSettings, IncompleteGroupsListAllTheirParams) {
  test::MemorySource source = model();
  set_optimizer_groups(source.state().common, {group(0.05, {"matrix"})}, /*complete=*/false);
  const std::vector<OptimizerGroup> read = optimizer_groups(source);
  EXPECT_NE(group_of(read, "matrix"), nullptr);
  EXPECT_EQ(group_of(read, "vector"), nullptr);
}

TEST(OptimizerSettings, DerivedFromTheScheduleOfARun) {
  test::MemorySource source = model();
  ParamSchedule schedule;
  schedule.max_lr = 1e-3;
  schedule.min_lr = 1e-4;
  schedule.lr_decay_steps = 100;
  schedule.lr_decay_style = "cosine";
  schedule.start_wd = schedule.end_wd = 0.1;
  schedule.wd_incr_style = "constant";
  json& common = source.state().common;
  common = {{"step", 7}, {"config", {{"optimizer", {{"adam_beta1", 0.9}, {"adam_beta2", 0.95}, {"adam_eps", 1e-8}}}}}};
  common["opt_param_scheduler"] = schedule_to_json(schedule);
  common["opt_param_scheduler"]["num_steps"] = 40;
  const std::vector<OptimizerGroup> groups = optimizer_groups(source);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].lr, learning_rate(schedule, 40));
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(groups[0].beta2, 0.95);
  EXPECT_EQ(groups[0].step, 7);
  EXPECT_EQ(groups[0].max_lr, 1e-3);
  EXPECT_EQ(groups[1].weight_decay, 0.0);
  EXPECT_EQ(groups[1].params, std::vector<std::string>{"vector"});
  EXPECT_EQ(groups[1].lr, groups[0].lr);
}

// --decoupled-lr and --apply-wd-to-qk-layernorm: what msckpt tells other programs of such a run.
TEST(OptimizerSettings, DerivedGroupsHaveDecoupledRatesAndDecayedNorms) {
  test::MemorySource source = model();
  const std::string q_norm = "decoder.layers.0.self_attention.q_layernorm.weight";
  source.set("embedding.word_embeddings.weight", TensorRole::kParam, {2, 1}, {1, 2});
  source.set("output_layer.weight", TensorRole::kParam, {2, 1}, {1, 2});
  source.set(q_norm, TensorRole::kParam, {2}, {1, 2});
  ParamSchedule schedule;
  schedule.max_lr = 1e-3;
  schedule.min_lr = 1e-4;
  schedule.decoupled_lr = 5e-4;
  schedule.decoupled_min_lr = 2e-4;
  schedule.lr_decay_steps = 100;
  schedule.lr_decay_style = "linear";
  schedule.start_wd = schedule.end_wd = 0.1;
  schedule.wd_incr_style = "constant";
  json& common = source.state().common;
  common = {{"step", 7}, {"config", {{"optimizer", {{"apply_wd_to_qk_layernorm", true}}}}}};
  common["opt_param_scheduler"] = schedule_to_json(schedule);
  common["opt_param_scheduler"]["num_steps"] = 50;
  std::vector<OptimizerGroup> groups = optimizer_groups(source);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_DOUBLE_EQ(groups[0].lr.value_or(0), 5.5e-4);
  EXPECT_EQ(group_of(groups, q_norm), &groups[0]);
  EXPECT_EQ(groups[1].params, std::vector<std::string>{"vector"});
  EXPECT_DOUBLE_EQ(groups[1].lr.value_or(0), 5.5e-4);
  EXPECT_DOUBLE_EQ(groups[2].lr.value_or(0), 3.5e-4);
  EXPECT_EQ(groups[2].max_lr, 5e-4);
  EXPECT_EQ(groups[2].weight_decay, 0.1);
  EXPECT_EQ(group_of(groups, "embedding.word_embeddings.weight"), &groups[2]);
  EXPECT_EQ(group_of(groups, "output_layer.weight"), &groups[2]);
  common["config"]["optimizer"]["apply_wd_to_qk_layernorm"] = false;
  groups = optimizer_groups(source);
  EXPECT_EQ(group_of(groups, q_norm), &groups[1]);
}

TEST(OptimizerSettings, NoSettingsGiveNoGroups) {
  test::MemorySource source = model();
  EXPECT_TRUE(optimizer_groups(source).empty());
  source.state().common["step"] = 3;
  const std::vector<OptimizerGroup> groups = optimizer_groups(source);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].step, 3);
  EXPECT_FALSE(groups[0].lr.has_value());
}

TEST(OptimizerSettings, MalformedGroupsThrowCorruptData) {
  for (const char* text :
       {R"([3])", R"([{"lr": "fast"}])", R"([{"step": -1}])", R"([{"options": []}])", R"([{"params": [3]}])",
        R"([{"lr": 1}, {"lr": 2}])", R"([{"params": ["matrix"]}, {"params": ["matrix"]}])"}) {
    test::MemorySource source = model();
    source.state().common["optimizer"]["groups"] = json::parse(text);
    EXPECT_EQ(ms::test::code_of([&] { optimizer_groups(source); }), core::ErrorCode::kCorruptData) << text;
  }
}

TEST(OptimizerSettings, TextListsStatedValues) {
  EXPECT_EQ(settings_text(group(0.05, {})), "lr 0.0003, weight_decay 0.05, betas 0.8 and 0.97, eps 1e-08, step 5");
  EXPECT_EQ(settings_text({}), "nothing stated");
}

}  // namespace
}  // namespace ms::ckpt
