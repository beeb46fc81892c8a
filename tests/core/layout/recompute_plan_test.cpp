#include "core/layout/recompute_plan.h"

#include <gtest/gtest.h>

namespace ms::layout {
namespace {

TEST(RecomputePlan, BlockRecomputesTheFirstLayersUniformAllInGroups) {
  const RecomputePlan block({.granularity = "full", .method = "block", .num_layers = 2});
  EXPECT_TRUE(block.recomputes(1));
  EXPECT_FALSE(block.recomputes(2));
  const RecomputePlan uniform({.granularity = "full", .method = "uniform", .num_layers = 3});
  EXPECT_TRUE(uniform.recomputes(3));
  EXPECT_EQ(uniform.group_begin(2), 0);
  EXPECT_EQ(uniform.group_begin(3), 3);
}

// Other stages and chunks may have a different number of layers than the first one.
TEST(RecomputePlan, HoldsForAnyNumberOfLayers) {
  const RecomputePlan none;
  const RecomputePlan block({.granularity = "full", .method = "block", .num_layers = 2});
  const RecomputePlan uniform({.granularity = "full", .method = "uniform", .num_layers = 3});
  for (const int64_t layer : {0, 1, 2, 7, 1000}) {
    EXPECT_FALSE(none.recomputes(layer));
    EXPECT_EQ(none.group_begin(layer), layer);
    EXPECT_EQ(block.recomputes(layer), layer < 2);
    EXPECT_EQ(block.group_begin(layer), layer);
    EXPECT_TRUE(uniform.recomputes(layer));
    EXPECT_EQ(uniform.group_begin(layer), layer - layer % 3);
  }
}

TEST(RecomputePlan, OutputsAreRebuiltInLayersBehindThoseRecomputedWhole) {
  const RecomputePlan plan({.granularity = "full",
                            .method = "block",
                            .num_layers = 2,
                            .norm = true,
                            .activation = true,
                            .norm_num_layers = 1});
  for (int64_t layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(plan.recomputed_outputs(layer).norms, layer == 2) << layer;
    EXPECT_EQ(plan.recomputed_outputs(layer).activation, layer >= 2) << layer;
    EXPECT_FALSE(plan.recomputed_outputs(layer).mlp);
  }
  EXPECT_TRUE(RecomputePlan({.granularity = "selective", .mlp_module = true}).recomputed_outputs(7).mlp);
}

}  // namespace
}  // namespace ms::layout
