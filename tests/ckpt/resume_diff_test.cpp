// Whether a run that loads one checkpoint continues as one that loads another.
#include "ckpt/resume_diff.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ckpt/optimizer_settings.h"
#include "ckpt/param_schedule.h"
#include "tests/ckpt/memory_source.h"

namespace ms::ckpt {
namespace {

using core::TensorRole;
using nlohmann::json;

test::MemorySource run() {
  test::MemorySource source;
  for (const TensorRole role : {TensorRole::kParam, TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
    source.set("matrix", role, {2, 2}, {1, 2, 3, 4});
    source.set("vector", role, {2}, {5, 6});
  }
  OptimizerGroup decayed, other;
  decayed.lr = other.lr = 3e-4;
  decayed.beta1 = other.beta1 = 0.8;
  decayed.beta2 = other.beta2 = 0.97;
  decayed.eps = other.eps = 1e-8;
  decayed.step = other.step = 5;
  decayed.weight_decay = 0.05;
  other.weight_decay = 0.0;
  decayed.params = {"matrix"};
  other.params = {"vector"};
  json& common = source.state().common;
  set_optimizer_groups(common, {decayed, other}, true);
  common["rng"] = {{"seed", 1234}};
  common["consumed_train_samples"] = 40;
  return source;
}

json& group(test::MemorySource& source, size_t index) { return source.state().common["optimizer"]["groups"][index]; }

ResumeFinding finding(const ResumeReport& report, std::string_view kind) {
  for (const ResumeFinding& one : report.kinds) {
    if (one.kind == kind) return one;
  }
  ADD_FAILURE() << kind;
  return {};
}

TEST(ResumeDiff, SameRunContinuesExactly) {
  test::MemorySource a = run(), b = run();
  const ResumeReport report = diff_resume(a, b);
  EXPECT_EQ(report.verdict, ResumeVerdict::kContinuesExactly);
  EXPECT_EQ(report.kinds.size(), 7U);
  for (const ResumeFinding& one : report.kinds) EXPECT_EQ(one.answer, ResumeAnswer::kSame) << one.kind;
  EXPECT_EQ(to_json(report)["verdict"], "continues exactly");
  EXPECT_EQ(to_json(report)["kinds"][2]["kind"], "moments");
}

TEST(ResumeDiff, OneChangedValueIsNamedInItsKind) {
  struct Case {
    const char* kind;
    ResumeVerdict verdict;
    std::function<void(test::MemorySource&)> change;
  };
  const Case cases[] = {
      {"weights", ResumeVerdict::kOtherModel,
       [](auto& b) {
         b.set("vector", TensorRole::kParam, {2}, {5, 6.5});
       }},
      {"master weights", ResumeVerdict::kFreshOptimizer,
       [](auto& b) {
         b.set("matrix", TensorRole::kMaster, {2, 2}, {1, 2, 3, 4.5});
       }},
      {"moments", ResumeVerdict::kFreshOptimizer,
       [](auto& b) {
         b.set("matrix", TensorRole::kExpAvgSq, {2, 2}, {0, 2, 3, 4});
       }},
      {"step", ResumeVerdict::kOtherSettings, [](auto& b) { group(b, 0)["step"] = 90000; }},
      {"groups and schedule", ResumeVerdict::kOtherSettings, [](auto& b) { group(b, 1)["lr"] = 0.0; }},
      {"groups and schedule", ResumeVerdict::kOtherSettings, [](auto& b) { group(b, 0)["beta2"] = 0.999; }},
      {"groups and schedule", ResumeVerdict::kOtherSettings, [](auto& b) { group(b, 1)["weight_decay"] = 0.05; }},
      {"rng", ResumeVerdict::kOtherSettings, [](auto& b) { b.state().common["rng"]["seed"] = 1; }},
      {"data position", ResumeVerdict::kOtherSettings,
       [](auto& b) { b.state().common["consumed_train_samples"] = 48; }},
  };
  for (const Case& one : cases) {
    test::MemorySource a = run(), b = run();
    one.change(b);
    const ResumeReport report = diff_resume(a, b);
    EXPECT_EQ(report.verdict, one.verdict) << one.kind;
    EXPECT_EQ(finding(report, one.kind).answer, ResumeAnswer::kDiffers) << one.kind;
    EXPECT_FALSE(finding(report, one.kind).text.empty()) << one.kind;
  }
}

TEST(ResumeDiff, WeightsAloneContinueWithAFreshOptimizer) {
  test::MemorySource a = run(), b;
  b.set("matrix", TensorRole::kParam, {2, 2}, {1, 2, 3, 4});
  b.set("vector", TensorRole::kParam, {2}, {5, 6});
  const ResumeReport report = diff_resume(a, b);
  EXPECT_EQ(report.verdict, ResumeVerdict::kFreshOptimizer);
  EXPECT_EQ(finding(report, "moments").answer, ResumeAnswer::kOnlyFirst);
  EXPECT_EQ(finding(report, "master weights").answer, ResumeAnswer::kSame) << "fp32 weights are their own masters";
  EXPECT_EQ(finding(diff_resume(b, a), "moments").answer, ResumeAnswer::kOnlySecond);
}

// A run of mstrain --optimizer sgd, as it states its settings.
test::MemorySource sgd_run(double momentum) {
  test::MemorySource source;
  source.set("matrix", TensorRole::kParam, {2, 2}, {1, 2, 3, 4});
  if (momentum > 0) source.set("matrix", TensorRole::kMomentumBuffer, {2, 2}, {5, 6, 7, 8});
  json& common = source.state().common;
  common["config"]["optimizer"] = {{"optimizer", "sgd"}, {"sgd_momentum", momentum}, {"adam_beta1", 0.9}};
  common["step"] = 5;
  return source;
}

TEST(ResumeDiff, SgdWithoutMomentumHasNoMomentsToContinueFrom) {
  test::MemorySource a = sgd_run(0), b = sgd_run(0), adam = run();
  const ResumeReport report = diff_resume(a, b);
  EXPECT_EQ(report.verdict, ResumeVerdict::kContinuesExactly);
  EXPECT_EQ(finding(report, "moments").text, "SGD without momentum keeps none");
  EXPECT_EQ(finding(report, "step").answer, ResumeAnswer::kSame);
  EXPECT_EQ(finding(report, "groups and schedule").text, "1 group: momentum 0, step 5");
  b.state().common["step"] = 6;
  EXPECT_EQ(diff_resume(a, b).verdict, ResumeVerdict::kOtherSettings);
  EXPECT_EQ(settings_differences(a, b).size(), 1U);
  test::MemorySource weights;  // of no run: nothing says that none were kept
  weights.set("matrix", TensorRole::kParam, {2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(diff_resume(a, weights).verdict, ResumeVerdict::kFreshOptimizer);
}

TEST(ResumeDiff, AnotherMomentumIsAnotherSetting) {
  test::MemorySource a = sgd_run(0.9), b = sgd_run(0.5), none = sgd_run(0);
  const ResumeReport report = diff_resume(a, b);
  EXPECT_EQ(report.verdict, ResumeVerdict::kOtherSettings);
  EXPECT_EQ(finding(report, "groups and schedule").text, "momentum 0.9 and 0.5 (matrix)");
  EXPECT_EQ(settings_differences(a, b), std::vector<std::string>{"momentum 0.9 and 0.5 (matrix)"});
  EXPECT_EQ(diff_resume(a, none).verdict, ResumeVerdict::kFreshOptimizer);
}

TEST(ResumeDiff, OtherTensorIsAnotherModel) {
  test::MemorySource a = run(), b = run();
  b.set("more", TensorRole::kParam, {1}, {0});
  EXPECT_EQ(diff_resume(a, b).verdict, ResumeVerdict::kOtherModel);
  EXPECT_EQ(diff_resume(b, a).verdict, ResumeVerdict::kOtherModel);
}

TEST(ResumeDiff, ConstantScheduleEqualsNoSchedule) {
  test::MemorySource a = run(), b = run();
  ParamSchedule schedule;
  schedule.max_lr = schedule.min_lr = 3e-4;
  schedule.lr_decay_steps = 1;
  schedule.lr_decay_style = schedule.wd_incr_style = "constant";
  b.state().common["opt_param_scheduler"] = schedule_to_json(schedule);
  b.state().common["opt_param_scheduler"]["num_steps"] = 40;
  EXPECT_EQ(diff_resume(a, b).verdict, ResumeVerdict::kContinuesExactly);
  b.state().common["opt_param_scheduler"]["lr_decay_style"] = "linear";
  EXPECT_EQ(diff_resume(a, b).verdict, ResumeVerdict::kOtherSettings);
}

TEST(SettingsDifferences, ListValuesThatBothStateAndDiffer) {
  test::MemorySource a = run(), b = run();
  EXPECT_TRUE(settings_differences(a, b).empty());
  group(b, 0)["step"] = 90000;
  group(b, 0)["weight_decay"] = 0.0;
  const std::vector<std::string> found = settings_differences(a, b);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], "weight_decay 0.05 and 0 (matrix)");
  EXPECT_EQ(found[1], "step 5 and 90000 (matrix)");
  for (const char* key : {"step", "weight_decay"}) group(b, 0).erase(key);
  b.state().common.erase("step");
  EXPECT_TRUE(settings_differences(a, b).empty()) << "a missing value is not a contradiction";
}

}  // namespace
}  // namespace ms::ckpt
