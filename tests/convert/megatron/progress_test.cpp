// What a Megatron checkpoint says of its training, wherever its optimizer keeps the step.
#include "convert/megatron/progress.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace ms::convert {
namespace {

using namespace std::string_literals;

// Opcodes of a short text, and of a dictionary.
std::string text(const std::string& value) { return "U" + std::string(1, static_cast<char>(value.size())) + value; }
std::string dict(const std::string& items) { return "}(" + items + "u"; }

ckpt::CheckpointInfo info_of(const std::string& state) {
  const Pickle args("\x80\x02" + dict(text("consumed_train_samples") + "K\x18") + ".", "args");
  const Pickle pickle("\x80\x02" + state + ".", "test");
  ckpt::CheckpointInfo info;
  add_megatron_progress(pickle.root(), MegatronArgs(args.root(), "args"), info);
  return info;
}

const std::string kGroups =
    dict(text("param_groups") + "](" + dict(text("step") + "G\x40\x1c\0\0\0\0\0\0"s) + "e");  // 7.0

TEST(MegatronProgress, IterationSamplesAndScheduler) {
  const auto info = info_of(dict(text("iteration") + "K\x03" + text("opt_param_scheduler") +
                                 dict(text("num_steps") + "K\x18" + text("lr_decay_style") + text("cosine"))));
  EXPECT_EQ(info.iteration, 3);
  EXPECT_EQ(info.common.at("consumed_train_samples"), 24);
  EXPECT_EQ(info.common.at("opt_param_scheduler").at("num_steps"), 24);
  EXPECT_EQ(info.common.at("opt_param_scheduler").at("lr_decay_style"), "cosine");
  EXPECT_FALSE(info.common.contains("step"));
}

TEST(MegatronProgress, TheStepOfAnOptimizerInAnother) {
  const std::string inner = dict(text("optimizer") + kGroups);
  EXPECT_EQ(info_of(dict(text("optimizer") + kGroups)).common.at("step"), 7);
  EXPECT_EQ(info_of(dict(text("optimizer") + inner)).common.at("step"), 7);
  EXPECT_EQ(info_of(dict(text("optimizer") + "](" + inner + "e")).common.at("step"), 7) << "chained";
  EXPECT_FALSE(info_of(dict(text("optimizer") + "N")).common.contains("step"));
}

}  // namespace
}  // namespace ms::convert
