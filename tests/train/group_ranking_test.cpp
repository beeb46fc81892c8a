#include "train/group_ranking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/thrown.h"

namespace ms::train {
namespace {

using testing::HasSubstr;
using Types = std::vector<std::string>;

// Of 4 groups 2 are chosen.
TrainerConfig model_of(const std::string& score_function, int64_t topk) {
  TrainerConfig config;
  config.model.num_experts = 16;
  config.model.moe_router_score_function = score_function;
  config.model.moe_router_num_groups = 4;
  config.model.moe_router_group_topk = 2;
  config.model.moe_router_topk = topk;
  return config;
}

// The balancing type that a configuration or a checkpoint gives the model. flags: the user's.
template <class Take>
Types balancing(TrainerConfig config, const std::vector<std::string>& flags, const Take& take) {
  core::ConfigFields fields = config.fields();
  fields.parse_flags(flags);
  take(fields, config);
  return config.training.moe_router_load_balancing_type;
}
Types of_huggingface(const std::string& score_function, int64_t topk, const std::vector<std::string>& flags = {}) {
  return balancing(model_of(score_function, topk), flags, take_huggingface_group_ranking);
}

TEST(GroupRanking, DeepSeekV2IsRankedByTheHighestScore) {
  EXPECT_EQ(of_huggingface("softmax", 4), Types{"group_limited_greedy"});
  EXPECT_EQ(of_huggingface("softmax", 2), Types{"aux_loss"}) << "one of each group: the same";
  EXPECT_EQ(of_huggingface("softmax", 4, {"--moe-router-load-balancing-type", "none"}), Types{"none"}) << "the user's";
}

TEST(GroupRanking, DeepSeekV3IsRankedByTheTwoHighestScores) {
  EXPECT_EQ(of_huggingface("sigmoid", 4), Types{"aux_loss"});
  for (const int64_t topk : {2, 6}) {
    EXPECT_THAT(test::thrown_by([&] { of_huggingface("sigmoid", topk); }).text,
                HasSubstr(core::cat("by ", topk / 2, ": give the model's flags")));
  }
}

TEST(GroupRanking, ACheckpointHasThatOfItsRun) {
  const auto taken = [](const ckpt::CheckpointInfo& info) {
    return balancing(model_of("softmax", 4), {}, [&](const core::ConfigFields& fields, TrainerConfig& config) {
      take_group_ranking(info, fields, config);
    });
  };
  ckpt::CheckpointInfo info;
  EXPECT_EQ(taken(info), Types{"aux_loss"}) << "Megatron's";
  info.model_extra["hf_config"] = nlohmann::json::object();
  EXPECT_EQ(taken(info), Types{"group_limited_greedy"}) << "converted from transformers";
  TrainerConfig by_sum = model_of("softmax", 4), by_highest = by_sum;
  by_highest.training.moe_router_load_balancing_type = {"group_limited_greedy"};
  note_group_ranking(by_sum, info.common);
  EXPECT_EQ(taken(info), Types{"aux_loss"}) << "the run's";
  EXPECT_NO_THROW(check_group_ranking(info, by_sum));
  EXPECT_THAT(test::thrown_by([&] { check_group_ranking(info, by_highest); }).text, HasSubstr("leave out"));
  note_group_ranking(by_highest, info.common);
  EXPECT_EQ(taken(info), Types{"group_limited_greedy"});
  EXPECT_NO_THROW(check_group_ranking(info, by_highest));
  EXPECT_THAT(test::thrown_by([&] { check_group_ranking(info, by_sum); }).text, HasSubstr("give --moe"));
  for (const nlohmann::json& damaged : {nlohmann::json("mean"), nlohmann::json(1)}) {
    info.common["moe_router_group_ranking"] = damaged;
    EXPECT_THAT(test::thrown_by([&] { check_group_ranking(info, by_sum); }).text, HasSubstr("expected \"highest\" or"));
  }
}

TEST(GroupRanking, IsNotedWhereItMakesADifference) {
  for (const auto& [score_function, topk] : {std::pair{"softmax", 2}, std::pair{"sigmoid", 4}}) {
    nlohmann::json common = nlohmann::json::object();
    note_group_ranking(model_of(score_function, topk), common);
    EXPECT_TRUE(common.empty()) << score_function;
  }
}

}  // namespace
}  // namespace ms::train
