// Plans and runs of other ways through the pipeline: recomputed or swapped layers, waiting gradients, uneven stages.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/planned_run.h"

namespace ms {
namespace {

using test::TinyLayout;

TEST(PlanOfPipeline, EqualsTheRunWithANumberOfRecomputedLayersForEachStage) {
  for (const TinyLayout& layout : {TinyLayout{2, 2, 1, false, true}, TinyLayout{1, 4, 1}}) {
    for (const int64_t type : {2, 0}) {
      SCOPED_TRACE(core::cat(layout.name(), ", type ", type));
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.model.num_layers = 8;
      config.training.global_batch_size = 16;
      config.parallel.num_layer_list = layout.pp == 2 ? std::vector<int64_t>{5, 3} : std::vector<int64_t>{3, 1, 2, 2};
      config.training.recompute_module_list = layout.pp == 2 ? std::vector<int64_t>{3, 0}  //
                                                             : std::vector<int64_t>{2, 1, 0, 1};
      config.training.recompute_type = type;
      test::expect_plan_equals_run(config, layout.ranks());
      config.training.recompute_granularity = "selective";
      config.training.recompute_modules = {"mlp"};
      test::expect_plan_equals_run(config, layout.ranks());
    }
  }
}

TEST(PlanOfPipeline, EqualsTheRunWithOtherWaysThroughThePipeline) {
  const TinyLayout layouts[] = {
      {2, 2, 1, false, true, 2}, {1, 4, 1, false, false, 2}, {1, 2, 2, 2, false, 2}, {1, 2, 2, 3, false, 2}};
  const test::PlanMode changes[] = {
      {"deferred gradients of the output layer",
       [](train::TrainerConfig& config) { config.parallel.defer_embedding_wgrad_compute = true; }},
      {"of three micro-batches",
       [](train::TrainerConfig& config) {
         config.parallel.defer_embedding_wgrad_compute = true;
         config.parallel.wgrad_deferral_limit = 3;
       }},
      {"recomputation in the bubble", [](train::TrainerConfig& config) { config.training.recompute_in_bubble = true; }},
      {"recomputation in the bubble, norms and activations in the rest",
       [](train::TrainerConfig& config) {
         config.training.recompute_in_bubble = true;
         config.training.recompute_norm = config.training.recompute_activation_function = true;
       }},
      {"recomputation in the bubble, the rest swapped but for the MLPs of two layers",
       [](train::TrainerConfig& config) {
         config.training.recompute_in_bubble = true;
         test::swap_all(config);
         config.training.recompute_num_layers = 2;
       }},
      {"recomputation in the bubble, the rest swapped",
       [](train::TrainerConfig& config) {
         config.training.recompute_in_bubble = true;
         test::swap_all(config);
       }},
      {"a layer recomputed, the rest swapped",
       [](train::TrainerConfig& config) {
         test::kPlanModes[test::kPlanBlock].set(config);
         test::swap_all(config);
       }},
      {"recomputation in advance",
       [](train::TrainerConfig& config) {
         test::kPlanModes[test::kPlanBlock].set(config);
         config.training.recompute_in_advance = true;
       }},
      {"recomputed layers counted by stage",
       [](train::TrainerConfig& config) {
         config.training.recompute_granularity = "full";
         config.training.recompute_method = "block";
         config.training.recompute_num_layers = 1;
         config.training.enable_recompute_layers_per_pp_rank = true;
         config.training.recompute_norm = true;
         config.training.recompute_norm_num_layers = 1;
       }},
      {"groups of micro-batches",
       [](train::TrainerConfig& config) {
         config.parallel.microbatch_group_size_per_virtual_pipeline_stage =
             config.parallel.pipeline_model_parallel_size + 2;
       }},
      {"no-op layers",
       [](train::TrainerConfig& config) {
         config.model.num_layers = 16;
         config.parallel.noop_layers = {0, 5, 6, 7, 15};
       }},
  };
  test::expect_plans_equal_runs(layouts, changes, test::PlanTable::kWhole,
                                [](train::TrainerConfig& config) { config.model.num_layers = 8; });
}

TEST(PlanOfPipeline, EqualsTheRunWhoseOperandsOfWaitingGradientsLeaveMemory) {
  const TinyLayout layouts[] = {{2, 2, 1, false, true, 2, "nanopipe"},
                                {1, 4, 1, false, false, 2, "nanopipe"},
                                {2, 2, 1, false, false, 2, "nanopipe"}};
  const test::PlanMode changes[] = {
      {"operands", [](train::TrainerConfig& config) { config.training.swap_min_tensor_kib = 0; }},
      {"operands of 2 KiB and more, norms behind attention and MLP",
       [](train::TrainerConfig& config) {
         config.model.post_norm = true;
         config.training.swap_min_tensor_kib = 2;
       }},
      {"activations too", test::swap_all},
      {"a layer recomputed",
       [](train::TrainerConfig& config) {
         test::kPlanModes[test::kPlanBlock].set(config);
         config.training.swap_min_tensor_kib = 0;
       }},
  };
  test::expect_plans_equal_runs(layouts, changes, test::PlanTable::kWhole, [](train::TrainerConfig& config) {
    config.model.num_layers = 16;
    config.training.global_batch_size = 8;
    config.parallel.use_nanopipe_swap = true;
  });
}

TEST(PlanOfPipeline, EqualsTheRunWithUnevenStages) {
  const struct {
    TinyLayout layout;
    const char* text;
  } rows[] = {{{1, 2, 1}, "Et|tttL"},
              {{2, 2, 1, false, true}, "Et|t|t|tL"},
              {{1, 4, 1}, "E|tt|tt|L"},
              {{2, 2, 2, true, true}, "E|ttt|t|L"}};
  for (const auto& row : rows) {
    for (const test::PlanMode& mode : test::kPlanModes) {
      const std::string text = row.text;
      SCOPED_TRACE(core::cat(row.layout.name(), ", ", text, ", ", mode.name));
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), row.layout);
      config.training.global_batch_size = 8;
      config.parallel.pipeline_model_parallel_layout = text;
      mode.set(config);
      test::expect_plan_equals_run(config, row.layout.ranks());
    }
  }
}

}  // namespace
}  // namespace ms
