#include "core/layout/recompute_plan.h"

#include <gtest/gtest.h>

namespace ms::layout {
namespace {

bool recomputes_mlp(const RecomputePlan& plan, int64_t layer) {
  return (plan.recomputed_parts(layer) & kRecomputedMlp) != 0;
}

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

// Layers of the chunks of a stage in turn, as MindSpeed numbers them: layer l of chunk c is number l x chunks + c.
TEST(RecomputePlan, MayCountTheLayersOfAStage) {
  constexpr int kChunks = 3;
  constexpr int64_t kLayers = 4;
  for (int64_t num_layers = 0; num_layers <= kLayers * kChunks; ++num_layers) {
    const RecomputePlan whole({.granularity = "full", .method = "block", .num_layers = num_layers, .chunks = kChunks});
    const RecomputePlan norms({.norm = true,
                               .activation = true,
                               .norm_num_layers = num_layers,
                               .activation_num_layers = num_layers,
                               .chunks = kChunks});
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        const bool among = layer * kChunks + chunk < num_layers;
        EXPECT_EQ(whole.of_place({0, chunk}).recomputes(layer), among) << num_layers << ", " << chunk << ", " << layer;
        EXPECT_EQ(norms.of_place({0, chunk}).recomputed_parts(layer),
                  among || num_layers == 0 ? kRecomputedNorms | kRecomputedActivation : 0);
      }
    }
  }
}

TEST(RecomputePlan, MayHaveANumberOfLayersForEachStage) {
  const RecomputePlan layers({.norm = true, .norm_num_layers = 1, .module_list = {2, 0}});
  const RecomputePlan mlps = layers.with_module_list({0, 1}, RecomputedModule::kMlp);
  for (int stage = 0; stage < 2; ++stage) {
    for (int64_t layer = 0; layer < 4; ++layer) {
      EXPECT_EQ(layers.of_place({stage, 0}).recomputes(layer), stage == 0 && layer < 2) << stage << ", " << layer;
      EXPECT_FALSE(recomputes_mlp(layers.of_place({stage, 0}), layer));
      EXPECT_FALSE(mlps.of_place({stage, 0}).recomputes(layer));
      EXPECT_EQ(recomputes_mlp(mlps.of_place({stage, 0}), layer), stage == 1 && layer < 1);
    }
    EXPECT_EQ(layers.of_place({stage, 0}).group_begin(3), 3);
    // Counted after the layers that are recomputed whole.
    EXPECT_EQ(layers.of_place({stage, 0}).recomputed_parts(stage == 0 ? 2 : 0), kRecomputedNorms);
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
    const RecomputedParts parts = plan.recomputed_parts(layer);
    EXPECT_EQ(parts, layer < 2 ? 0 : layer == 2 ? kRecomputedNorms | kRecomputedActivation : kRecomputedActivation);
  }
  EXPECT_TRUE(recomputes_mlp(RecomputePlan({.granularity = "selective", .mlp_module = true}), 7));
  const RecomputePlan first_mlps({.mlp_num_layers = 5, .chunks = 2});
  for (int64_t layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(recomputes_mlp(first_mlps.of_place({0, 0}), layer), layer < 3) << layer;
    EXPECT_EQ(recomputes_mlp(first_mlps.of_place({0, 1}), layer), layer < 2) << layer;
  }
  const RecomputePlan both({.granularity = "selective", .mlp_module = true, .module_list = {2, 0}});
  for (int64_t layer = 0; layer < 4; ++layer)
    EXPECT_EQ(recomputes_mlp(both.of_place({0, 0}), layer), layer >= 2) << "whole ones do not rebuild it again";
}

}  // namespace
}  // namespace ms::layout
