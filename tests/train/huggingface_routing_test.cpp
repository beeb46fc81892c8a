#include "train/huggingface_routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/thrown.h"

namespace ms::train {
namespace {

// Of a model with 4 groups, of which 2 are chosen.
std::vector<std::string> balancing(const std::string& score_function, int64_t topk,
                                   std::vector<std::string> flags = {}) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  fields.parse_flags(flags);
  config.model.num_experts = 16;
  config.model.moe_router_score_function = score_function;
  config.model.moe_router_num_groups = 4;
  config.model.moe_router_group_topk = 2;
  config.model.moe_router_topk = topk;
  take_huggingface_routing(fields, config);
  return config.training.moe_router_load_balancing_type;
}

using Types = std::vector<std::string>;

TEST(HuggingFaceRouting, DeepSeekV2RanksGroupsByTheirHighestScore) {
  EXPECT_EQ(balancing("softmax", 4), Types{"group_limited_greedy"});
  EXPECT_EQ(balancing("softmax", 2), Types{"aux_loss"}) << "one of each group: the same";
  EXPECT_EQ(balancing("softmax", 4, {"--moe-router-load-balancing-type", "none"}), Types{"none"}) << "the user's";
}

TEST(HuggingFaceRouting, DeepSeekV3RanksGroupsByTheirTwoHighestScores) {
  EXPECT_EQ(balancing("sigmoid", 4), Types{"aux_loss"});
  for (const int64_t topk : {2, 6}) {
    EXPECT_THAT(test::thrown_by([&] { balancing("sigmoid", topk); }).text,
                testing::HasSubstr(core::cat("by ", topk / 2, ": give the model's flags")));
  }
}

}  // namespace
}  // namespace ms::train
