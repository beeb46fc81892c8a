// Compares with Megatron's own OptimizerParamScheduler (tests/data/param_scheduler.json, made by
// make_scheduler_golden.py), and checks what a continued run does with the schedule of its checkpoint.
#include "train/optim/param_scheduler.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::train {
namespace {

TEST(ParamSchedule, EqualsMegatrons) {
  std::ifstream file(MS_TEST_DATA "/param_scheduler.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_GE(golden.size(), 12U);
  for (const auto& entry : golden) {
    const ParamSchedule schedule = continue_schedule({}, entry["schedule"], false, /*use_checkpoint=*/true);
    EXPECT_EQ(schedule.max_lr, 6e-4);
    for (const auto& point : entry["points"]) {
      EXPECT_NEAR(learning_rate(schedule, point[0]), point[1], 1e-18) << entry["schedule"].dump() << " at " << point[0];
      EXPECT_NEAR(weight_decay(schedule, point[0]), point[2], 1e-16) << entry["schedule"].dump() << " at " << point[0];
    }
  }
}

TrainerConfig config_of(const std::vector<std::string>& more) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  std::vector<std::string> flags = {"--num-layers",
                                    "2",
                                    "--hidden-size",
                                    "32",
                                    "--num-attention-heads",
                                    "4",
                                    "--swiglu",
                                    "--normalization",
                                    "RMSNorm",
                                    "--position-embedding-type",
                                    "rope",
                                    "--disable-bias-linear",
                                    "--vocab-size",
                                    "257",
                                    "--seq-length",
                                    "16",
                                    "--lr",
                                    "1e-3",
                                    "--global-batch-size",
                                    "4"};
  flags.insert(flags.end(), more.begin(), more.end());
  fields.parse_flags(flags);
  config.resolve_and_validate(1);
  return config;
}

TEST(ParamSchedule, IterationsAndSamplesAgree) {
  const TrainerConfig by_iters = config_of({"--train-iters", "50", "--lr-warmup-iters", "5", "--lr-decay-style", "WSD",
                                            "--lr-wsd-decay-iters", "10", "--lr-decay-iters", "40"});
  const TrainerConfig by_samples = config_of({"--train-samples", "200", "--lr-warmup-samples", "20", "--lr-decay-style",
                                              "WSD", "--lr-wsd-decay-samples", "40", "--lr-decay-samples", "160"});
  EXPECT_EQ(by_samples.training.train_iters, 50);
  EXPECT_EQ(schedule_to_json(param_schedule(by_iters)), schedule_to_json(param_schedule(by_samples)));
  EXPECT_EQ(param_schedule(by_iters).lr_decay_steps, 160);
  EXPECT_EQ(param_schedule(config_of({"--train-samples", "203"})).lr_decay_steps, 203);
  EXPECT_EQ(param_schedule(config_of({"--train-iters", "50", "--lr-warmup-fraction", "0.1"})).lr_warmup_steps, 20);
}

TEST(ParamSchedule, WeightDecayGrowsIfRequested) {
  const ParamSchedule schedule =
      param_schedule(config_of({"--train-iters", "10", "--weight-decay-incr-style", "linear", "--start-weight-decay",
                                "0.1", "--end-weight-decay", "0.3"}));
  EXPECT_DOUBLE_EQ(weight_decay(schedule, 0), 0.1);
  EXPECT_DOUBLE_EQ(weight_decay(schedule, 20), 0.2);
  EXPECT_DOUBLE_EQ(weight_decay(schedule, 400), 0.3);
}

TEST(ParamSchedule, RefusesMixedIterationsAndSamples) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--train-iters", "9", "--train-samples", "100"}, "exclude each other"},
      {{"--train-samples", "100", "--lr-warmup-iters", "2"}, "--lr-warmup-samples"},
      {{"--train-iters", "9", "--lr-warmup-samples", "2"}, "--train-samples"},
      {{"--train-iters", "9", "--lr-decay-style", "WSD"}, "--lr-wsd-decay-iters"},
      {{"--train-iters", "9", "--lr-decay-style", "steps"}, "inverse-square-root"},
      {{"--train-iters", "9", "--end-weight-decay", "0.1"}, "--weight-decay-incr-style"},
      {{"--train-iters", "9", "--weight-decay-incr-style", "linear"}, "--start-weight-decay"},
      {{"--train-samples", "3"}, "--train-samples"},
  };
  for (const auto& [flags, word] : cases) {
    try {
      config_of(flags);
      ADD_FAILURE() << flags[0] << " passed";
    } catch (const core::Error& e) {
      EXPECT_EQ(e.code(), core::ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  }
}

TEST(ParamSchedule, DecoupledRatesHaveTheSameShape) {
  const ParamSchedule schedule = param_schedule(
      config_of({"--train-iters", "50", "--min-lr", "1e-4", "--decoupled-lr", "4e-4", "--lr-warmup-iters", "10"}));
  const auto decoupled = decoupled_schedule(schedule);
  ASSERT_TRUE(decoupled);
  EXPECT_DOUBLE_EQ(learning_rate(*decoupled, 20), 2e-4);  // half of the warm-up
  EXPECT_DOUBLE_EQ(learning_rate(*decoupled, 40), 4e-4);
  EXPECT_DOUBLE_EQ(learning_rate(*decoupled, 120), 2.5e-4);  // half of the way to --min-lr
  EXPECT_DOUBLE_EQ(learning_rate(*decoupled, 200), 1e-4);
  EXPECT_EQ(param_schedule(config_of({"--train-iters", "9", "--decoupled-lr", "4e-4", "--decoupled-min-lr", "1e-5"}))
                .decoupled_min_lr,
            1e-5);
  EXPECT_FALSE(decoupled_schedule(param_schedule(config_of({"--train-iters", "50"}))));
}

TEST(ContinueSchedule, KeepsDecoupledRates) {
  const ParamSchedule plain = param_schedule(config_of({"--train-iters", "50"}));
  const ParamSchedule decoupled = param_schedule(config_of({"--train-iters", "50", "--decoupled-lr", "4e-4"}));
  EXPECT_EQ(continue_schedule(decoupled, schedule_to_json(decoupled), false, false).decoupled_lr, 4e-4);
  for (const auto& [given, saved] : {std::pair(plain, decoupled), std::pair(decoupled, plain)}) {
    const test::Thrown thrown =
        test::thrown_by([&, &g = given, &s = saved] { continue_schedule(g, schedule_to_json(s), false, false); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
    EXPECT_NE(thrown.text.find("--decoupled-lr"), std::string::npos) << thrown.text;
    EXPECT_EQ(continue_schedule(given, schedule_to_json(saved), true, false).decoupled_lr, given.decoupled_lr);
    EXPECT_EQ(continue_schedule(given, schedule_to_json(saved), false, true).decoupled_lr, saved.decoupled_lr);
  }
  nlohmann::json megatrons = schedule_to_json(plain);
  megatrons.erase("init_lr");  // which Megatron does not save, as little as the decoupled bounds
  EXPECT_EQ(continue_schedule(decoupled, megatrons, false, false).decoupled_lr, 4e-4);
}

TEST(ContinueSchedule, RefusesAnotherUnlessAFlagSelectsOne) {
  const ParamSchedule saved = param_schedule(config_of({"--train-iters", "50", "--lr-decay-style", "cosine"}));
  const ParamSchedule given = param_schedule(config_of({"--train-iters", "80", "--lr-decay-style", "cosine"}));
  const nlohmann::json json = schedule_to_json(saved);
  EXPECT_EQ(schedule_to_json(continue_schedule(saved, json, false, false)), json);
  EXPECT_EQ(continue_schedule(given, json, true, false).lr_decay_steps, 320);
  EXPECT_EQ(continue_schedule(given, json, false, true).lr_decay_steps, 200);
  try {
    continue_schedule(given, json, false, false);
    FAIL();
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find("--override-opt_param-scheduler"), std::string::npos) << e.what();
  }
  // A longer run at a constant rate has the same schedule.
  const auto constant = [](const char* iters) {
    return param_schedule(config_of({"--train-iters", iters, "--lr-decay-style", "constant"}));
  };
  EXPECT_EQ(continue_schedule(constant("80"), schedule_to_json(constant("50")), false, false).lr_decay_steps, 320);
  for (const char* change : {R"({"lr_decay_steps": 1e300})", R"({"lr_decay_steps": -1})", R"({"lr_decay_steps": 0.5})",
                             R"({"wd_incr_steps": "many"})", R"({"max_lr": null})", R"({"lr_decay_style": 3})"}) {
    nlohmann::json bad = json;
    bad.update(nlohmann::json::parse(change));
    EXPECT_EQ(test::thrown_by([&] { continue_schedule(given, bad, false, true); }).code, core::ErrorCode::kCorruptData)
        << change;
  }
}

}  // namespace
}  // namespace ms::train
