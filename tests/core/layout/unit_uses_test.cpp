// Counted by hand; tests/train/plan_test.cpp compares them with runs.
#include "core/layout/unit_uses.h"

#include <gtest/gtest.h>

#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

// 2 layers, 6 micro-batches.
TrainingStep step_of(const ModelLayout& layout, bool tied = false) {
  TrainingStep step{.model = test::small_model(64, tied), .layout = layout, .seq_length = 16, .num_microbatches = 6};
  step.layout.zero_stage = 2;
  step.layout.data_parallel_size = 2;
  return step;
}

using Counts = std::map<int64_t, int64_t>;

Counts reductions(const TrainingStep& step, int stage = 0) {
  Counts counts;
  for (const auto& [unit, uses] : unit_uses(step, stage)) counts[unit] = uses.reductions;
  return counts;
}

Counts gathers(const TrainingStep& step, int stage = 0) {
  Counts counts;
  for (const auto& [unit, uses] : unit_uses(step, stage)) counts[unit] = uses.gathers;
  return counts;
}

TEST(UnitUses, EachUnitIsReducedAfterEachMicrobatch) {
  EXPECT_EQ(reductions(step_of({})), (Counts{{-1, 6}, {0, 6}, {1, 6}, {2, 6}}));
}

TEST(UnitUses, LearnedPositionsAreAUnitOfTheirOwn) {
  TrainingStep step = step_of({});
  step.model.position_embedding_type = "learned_absolute";
  EXPECT_EQ(reductions(step), (Counts{{-2, 6}, {-1, 6}, {0, 6}, {1, 6}, {2, 6}}));
}

// The output layer's part after each micro-batch, the embedding's once, behind the last.
TEST(UnitUses, ATiedEmbeddingOfOneStageIsReducedOnceMore) {
  EXPECT_EQ(reductions(step_of({}, true)), (Counts{{-1, 7}, {0, 6}, {1, 6}, {2, 6}}));
}

TEST(UnitUses, ATiedEmbeddingOfTwoStagesIsReducedOnBoth) {
  const TrainingStep step = step_of({.pipeline_model_parallel_size = 2}, true);
  EXPECT_EQ(reductions(step, 0), (Counts{{-1, 6}, {0, 6}}));
  EXPECT_EQ(reductions(step, 1), (Counts{{-1, 6}, {1, 6}, {2, 6}}));
}

// Norms in its first part, matrices in the second.
TEST(UnitUses, ASplitBackwardReducesLayersTwice) {
  TrainingStep step = step_of({.pipeline_model_parallel_size = 2});
  step.schedule.method = ScheduleMethod::kZbH1;
  int64_t split = 0;
  for (const ScheduleAction& action : schedule_training(step.schedule, 0, 2, 1, 6))
    split += action.kind == ScheduleAction::kBackwardWeight ? 1 : 0;
  ASSERT_GT(split, 0);
  EXPECT_EQ(reductions(step, 0), (Counts{{-1, 6}, {0, 6 + split}}));
  step.frozen_parameters = {"decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.0.mlp.linear_fc2.weight",
                            "decoder.layers.0.self_attention.linear_proj.weight",
                            "decoder.layers.0.self_attention.linear_qkv.bias",
                            "decoder.layers.0.self_attention.linear_qkv.weight"};
  EXPECT_EQ(reductions(step, 0), (Counts{{-1, 6}, {0, 6}})) << "no matrix of it trains";
}

TEST(UnitUses, DeferredGradientsOfTheOutputLayerAreReducedAtTheEnd) {
  TrainingStep step = step_of({.pipeline_model_parallel_size = 2});
  step.deferred_output_gradients = 3;
  EXPECT_EQ(reductions(step, 1), (Counts{{1, 6}, {2, 7}}));
  TrainingStep tied = step_of({.pipeline_model_parallel_size = 2}, true);
  tied.deferred_output_gradients = 3;
  EXPECT_EQ(reductions(tied, 1), (Counts{{-1, 4}, {1, 6}, {2, 6}})) << "three at once";
}

// Its forward and its backward; an embedding's backward reads no weights.
TEST(UnitUses, WeightsAreGatheredTwiceForEachMicrobatch) {
  EXPECT_EQ(gathers(step_of({})), (Counts{{-1, 6}, {0, 12}, {1, 12}, {2, 12}}));
  EXPECT_EQ(gathers(step_of({}, true)), (Counts{{-1, 18}, {0, 12}, {1, 12}, {2, 12}})) << "the output layer reads it";
  const TrainingStep cut = step_of({.pipeline_model_parallel_size = 2}, true);
  EXPECT_EQ(gathers(cut, 0), (Counts{{-1, 6}, {0, 12}}));
  EXPECT_EQ(gathers(cut, 1), (Counts{{-1, 12}, {1, 12}, {2, 12}}));
  TrainingStep split = step_of({.pipeline_model_parallel_size = 2});
  split.schedule.method = ScheduleMethod::kZbH1;
  EXPECT_EQ(gathers(split), (Counts{{-1, 6}, {0, 12}})) << "gradients of weights read none";
}

TEST(UnitUses, OfAGroupThatRunsAgainAllButTheLastLayerAreGatheredOnceMore) {
  TrainingStep step = step_of({});
  step.recompute = RecomputePlan({.granularity = "full", .method = "uniform", .num_layers = 1});
  EXPECT_EQ(gathers(step), (Counts{{-1, 6}, {0, 12}, {1, 12}, {2, 12}}));
  step.recompute = RecomputePlan({.granularity = "full", .method = "uniform", .num_layers = 2});
  EXPECT_EQ(gathers(step), (Counts{{-1, 6}, {0, 18}, {1, 12}, {2, 12}}));
}

TEST(UnitUses, BucketsAreTheUnitsInReverse) {
  const TrainingStep step = step_of({}, true);
  const StageParameters parameters = stage_parameters(step, 0);
  const auto counts = [](const std::vector<UnitUses>& uses) {
    std::vector<int64_t> reductions, gathers;
    for (const UnitUses& of_bucket : uses) {
      reductions.push_back(of_bucket.reductions);
      gathers.push_back(of_bucket.gathers);
    }
    return std::pair(reductions, gathers);
  };
  using Lists = std::pair<std::vector<int64_t>, std::vector<int64_t>>;
  EXPECT_EQ(counts(uses_of_buckets(step, parameters, 0)), (Lists{{6, 6, 6, 7}, {1, 1, 1, 1}}));
  TrainingStep three = step, one = step;
  three.layout.zero_stage = 3;
  EXPECT_EQ(counts(uses_of_buckets(three, stage_parameters(three, 0), 0)), (Lists{{6, 6, 6, 7}, {12, 12, 12, 18}}));
  one.layout.zero_stage = 1;
  EXPECT_EQ(counts(uses_of_buckets(one, stage_parameters(one, 0), 0)), (Lists{{1, 1, 1, 1}, {1, 1, 1, 1}}));
}

}  // namespace
}  // namespace ms::layout
