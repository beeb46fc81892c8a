#include "core/layout/sub_steps.h"

#include <gtest/gtest.h>

#include "core/layout/formulas/flops.h"
#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

TEST(SubSteps, LayersWithExpertsSendTokens) {
  core::TransformerConfig model = test::small_model(17);
  EXPECT_EQ(sub_steps(model, 0), (std::vector{SubStep::kAttention, SubStep::kMlp}));
  model.num_experts = 4;
  model.moe_layer_freq = "2";
  ASSERT_NE(model.layers_with_experts()[0], model.layers_with_experts()[1]);
  const int64_t sparse = model.layers_with_experts()[0] ? 0 : 1;
  EXPECT_EQ(sub_steps(model, sparse),
            (std::vector{SubStep::kAttention, SubStep::kDispatch, SubStep::kExperts, SubStep::kCombine}));
  EXPECT_EQ(sub_steps(model, 1 - sparse), (std::vector{SubStep::kAttention, SubStep::kMlp}));
  EXPECT_TRUE(communicates(SubStep::kDispatch) && communicates(SubStep::kCombine));
  EXPECT_FALSE(communicates(SubStep::kExperts) || communicates(SubStep::kAttention));
}

// Forward and two gradients of every sub-step, and the output layer.
TEST(SubSteps, TheirFlopsAddUpToAStep) {
  TrainingStep step{.model = test::small_model(17), .layout = {}, .micro_batch_size = 2, .seq_length = 8};
  int64_t flops = 0;
  for (int64_t layer = 0; layer < step.model.num_layers; ++layer) {
    for (const SubStep sub_step : sub_steps(step.model, layer)) flops += 3 * forward_flops(step, layer, sub_step);
  }
  flops += 3 * 2 * step.tokens() * step.model.hidden_size * step.model.padded_vocab_size(1);
  EXPECT_EQ(flops, executed_flops(step, 0));
}

}  // namespace
}  // namespace ms::layout
