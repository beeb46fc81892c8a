#include "train/loop/expert_bias.h"

#include <gtest/gtest.h>

#include "tests/train/model/rank.h"

namespace ms::train {
namespace {

TEST(ExpertBias, RisesWhereAnExpertHasLessThanTheMean) {
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path());
  config.model.num_experts = 4;
  config.model.moe_ffn_hidden_size = 8;
  config.model.moe_layer_freq = "([0,1,0,1])";
  config.model.moe_router_score_function = "sigmoid";
  config.model.moe_router_enable_expert_bias = true;
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    ASSERT_EQ(rank.parameters->buffers().size(), 2U);
    for (const Parameter& parameter : rank.parameters->all()) EXPECT_FALSE(parameter.spec.is_buffer);
    ExpertLoads loads;
    loads[1].tokens = {1, 3, 2, 2};  // mean 2
    loads[3].tokens = {0, 1, 0, 0};  // mean 1/4
    for (int step = 0; step < 2; ++step) update_expert_biases(*rank.parameters, loads, 0.25);
    const auto bias = [&](int64_t layer) {
      const auto values = rank.parameters->find_buffer(core::cat("decoder.layers.", layer, ".mlp.router.expert_bias"))
                              ->values.elements<float>();
      return std::vector<float>(values.begin(), values.end());
    };
    EXPECT_EQ(bias(1), (std::vector<float>{0.5, -0.5, 0, 0}));
    EXPECT_EQ(bias(3), (std::vector<float>{0.5, -0.5, 0.5, 0.5}));
  });
}

}  // namespace
}  // namespace ms::train
