// The training progress in a Megatron checkpoint, wherever its optimizer stores the step.
#include "convert/megatron/progress.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace ms::convert {
namespace {

using namespace std::string_literals;

// Opcodes of a short string, and of a dictionary.
std::string text(const std::string& value) { return "U" + std::string(1, static_cast<char>(value.size())) + value; }
std::string dict(const std::string& items) { return "}(" + items + "u"; }

ckpt::CheckpointInfo info_of(const std::string& state) {
  const Pickle args("\x80\x02" + dict(text("consumed_train_samples") + "K\x18") + ".", "args");
  const Pickle pickle("\x80\x02" + state + ".", "test");
  ckpt::CheckpointInfo info;
  add_megatron_progress(pickle.root(), MegatronArgs(args.root(), "args"), {}, info);
  return info;
}

const std::string kGroups =
    dict(text("param_groups") + "](" + dict(text("step") + "G\x40\x1c\0\0\0\0\0\0"s) + "e");  // 7.0

TEST(MegatronProgress, IterationSamplesAndSchedulerAreRead) {
  const auto info = info_of(dict(text("iteration") + "K\x03" + text("opt_param_scheduler") +
                                 dict(text("num_steps") + "K\x18" + text("lr_decay_style") + text("cosine"))));
  EXPECT_EQ(info.iteration, 3);
  EXPECT_EQ(info.common.at("consumed_train_samples"), 24);
  EXPECT_EQ(info.common.at("opt_param_scheduler").at("num_steps"), 24);
  EXPECT_EQ(info.common.at("opt_param_scheduler").at("lr_decay_style"), "cosine");
  EXPECT_FALSE(info.common.contains("step"));
}

TEST(MegatronProgress, StepOfANestedOptimizerIsRead) {
  const std::string inner = dict(text("optimizer") + kGroups);
  EXPECT_EQ(info_of(dict(text("optimizer") + kGroups)).common.at("step"), 7);
  EXPECT_EQ(info_of(dict(text("optimizer") + inner)).common.at("step"), 7);
  EXPECT_EQ(info_of(dict(text("optimizer") + "](" + inner + "e")).common.at("step"), 7) << "chained";
  EXPECT_FALSE(info_of(dict(text("optimizer") + "N")).common.contains("step"));
}

TEST(MegatronProgress, SettingsRoundTrip) {
  const std::string group = dict(text("betas") + "G\x3f\xec\xcc\xcc\xcc\xcc\xcc\xcd" +  // 0.9, 0.95
                                 "G\x3f\xee\x66\x66\x66\x66\x66\x66\x86" + text("eps") +
                                 "G\x3e\x45\x79\x8e\xe2\x30\x8c\x3a" + text("step") + "K\x03");  // 1e-8
  const auto info = info_of(dict(text("optimizer") + dict(text("param_groups") + "](" + group + "e")));
  const nlohmann::json& settings = info.common.at("config").at("optimizer");
  EXPECT_EQ(settings.at("adam_beta1"), 0.9);
  EXPECT_EQ(settings.at("adam_beta2"), 0.95);
  EXPECT_EQ(settings.at("adam_eps"), 1e-8);
  std::map<std::string, MegatronArg> args;
  for (auto& [name, value] : megatron_progress_args(info)) args.emplace(name, value);
  EXPECT_EQ(args.at("consumed_train_samples"), MegatronArg(int64_t{24}));
  EXPECT_EQ(args.at("adam_beta2"), MegatronArg(0.95));
  EXPECT_EQ(args.at("seq_length"), MegatronArg());
}

TEST(MegatronProgress, OnlyACompleteScheduleIsWritten) {
  ckpt::CheckpointInfo info;
  EXPECT_TRUE(megatron_scheduler(info).is_null());
  nlohmann::json& schedule = info.common["opt_param_scheduler"];
  schedule = {{"max_lr", 1e-3},
              {"min_lr", 1e-4},
              {"lr_warmup_steps", 8.0},
              {"lr_decay_steps", 400},
              {"num_steps", 28},
              {"start_wd", 0.1},
              {"end_wd", 0.1},
              {"wd_incr_steps", 400},
              {"wd_incr_style", "constant"},
              {"lr_decay_style", "cosine"},
              {"init_lr", 0.0}};
  const nlohmann::json whole = megatron_scheduler(info);
  EXPECT_EQ(whole.size(), 10u);
  EXPECT_TRUE(whole.at("lr_warmup_steps").is_number_integer());
  schedule["lr_decay_style"] = 3;
  EXPECT_TRUE(megatron_scheduler(info).is_null());
  schedule.erase("lr_decay_style");
  EXPECT_TRUE(megatron_scheduler(info).is_null());
}

// As in Megatron's own scheduler, which reads weight decay only if start_wd exists.
TEST(MegatronProgress, ScheduleMayOmitWeightDecay) {
  ckpt::CheckpointInfo info;
  info.common["opt_param_scheduler"] = {{"max_lr", 1e-3},      {"min_lr", 1e-4}, {"lr_warmup_steps", 0},
                                        {"lr_decay_steps", 9}, {"num_steps", 4}, {"lr_decay_style", "linear"},
                                        {"start_wd", 0.1}};
  EXPECT_EQ(megatron_scheduler(info).size(), 6U);
}

TEST(MegatronProgress, InvalidUtf8IsDropped) {
  const auto info = info_of(dict(text("opt_param_scheduler") + dict(text("lr_decay_style") + text("\xff\xfe"))));
  EXPECT_NO_THROW(info.common.dump());
}

}  // namespace
}  // namespace ms::convert
