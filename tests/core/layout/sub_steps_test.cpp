#include "core/layout/sub_steps.h"

#include <gtest/gtest.h>

#include "core/layout/formulas/flops.h"
#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

TEST(SubSteps, LayersWithExpertsSendTokens) {
  core::TransformerConfig model = test::small_model(17);
  EXPECT_EQ(sub_steps(model, 0, 1), (std::vector{SubStep::kAttention, SubStep::kMlp}));
  model.num_experts = 4;
  model.moe_layer_freq = "2";
  ASSERT_NE(model.layers_with_experts()[0], model.layers_with_experts()[1]);
  const int64_t sparse = model.layers_with_experts()[0] ? 0 : 1;
  EXPECT_EQ(sub_steps(model, sparse, 1, 2),
            (std::vector{SubStep::kAttention, SubStep::kDispatch, SubStep::kExperts, SubStep::kCombine}));
  EXPECT_EQ(sub_steps(model, 1 - sparse, 1, 2), (std::vector{SubStep::kAttention, SubStep::kMlp}));
  EXPECT_EQ(backward_sub_steps(model, sparse, 2, 2),
            (std::vector{SubStep::kCombine, SubStep::kExperts, SubStep::kDispatch, SubStep::kAttention,
                         SubStep::kAttentionReduce}));
  EXPECT_TRUE(communicates(SubStep::kDispatch) && communicates(SubStep::kCombine));
  EXPECT_FALSE(communicates(SubStep::kExperts) || communicates(SubStep::kAttention));
}

TEST(SubSteps, ExpertsOnOneRankAreOneSubStep) {
  core::TransformerConfig model = test::small_model(17);
  model.num_experts = 4;
  EXPECT_EQ(sub_steps(model, 0, 1), (std::vector{SubStep::kAttention, SubStep::kExperts}));
  EXPECT_EQ(backward_sub_steps(model, 0, 1), (std::vector{SubStep::kExperts, SubStep::kAttention}));
}

TEST(SubSteps, TensorParallelBlocksEndInASum) {
  const core::TransformerConfig model = test::small_model(17);
  EXPECT_EQ(sub_steps(model, 0, 2),
            (std::vector{SubStep::kAttention, SubStep::kAttentionReduce, SubStep::kMlp, SubStep::kMlpReduce}));
  EXPECT_EQ(backward_sub_steps(model, 0, 2),
            (std::vector{SubStep::kMlp, SubStep::kMlpReduce, SubStep::kAttention, SubStep::kAttentionReduce}));
  const std::vector<ChunkStep> backward = backward_chunk_steps(model, {1, 2}, 1);
  EXPECT_EQ(backward, (std::vector<ChunkStep>{{SubStep::kMlp, 1},
                                              {SubStep::kAttention, 1},
                                              {SubStep::kMlp, 0},
                                              {SubStep::kAttention, 0},
                                              {SubStep::kResult, 2}}));
  EXPECT_TRUE(communicates(SubStep::kAttentionReduce) && communicates(SubStep::kMlpReduce));
}

// Forward and two gradients of every sub-step, and the output layer.
TEST(SubSteps, TheirFlopsAddUpToAStep) {
  for (const int64_t experts : {0, 6}) {
    TrainingStep step{.model = test::small_model(17), .layout = {}, .micro_batch_size = 2, .seq_length = 8};
    step.model.num_experts = experts;
    step.model.moe_layer_freq = "([0,1])";
    step.model.moe_ffn_hidden_size = 10;
    step.model.moe_router_topk = 3;
    step.model.moe_shared_expert_intermediate_size = 14;
    step.model.moe_shared_expert_gate = true;
    int64_t flops = 0;
    for (int64_t layer = 0; layer < step.model.num_layers; ++layer) {
      for (const SubStep sub_step : sub_steps(step.model, layer, 1)) flops += 3 * forward_flops(step, layer, sub_step);
    }
    flops += 3 * 2 * step.tokens() * step.model.hidden_size * step.model.padded_vocab_size(1);
    EXPECT_EQ(flops, executed_flops(step, 0));
    EXPECT_EQ(flops, step.micro_batch_size * model_flops_per_sample(step.model, step.seq_length, 1));
  }
}

}  // namespace
}  // namespace ms::layout
