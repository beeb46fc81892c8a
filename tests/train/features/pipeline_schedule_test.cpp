#include "train/features/pipeline_schedule.h"

#include <gtest/gtest.h>

#include "train/config.h"
#include "train/features/defer_embedding_wgrad.h"
#include "train/features/recompute_pipelining.h"

namespace ms::train {
namespace {

using layout::ScheduleMethod;

TEST(PipelineSchedule, FlagsChooseTheMethod) {
  EXPECT_EQ(schedule_settings({}).method, ScheduleMethod::k1F1B);
  EXPECT_EQ(schedule_settings({.schedules_method = "zb-h1"}).method, ScheduleMethod::kZbH1);
  EXPECT_EQ(schedule_settings({.schedules_method = "zb-v"}).method, ScheduleMethod::kZbV);
  EXPECT_EQ(schedule_settings({.schedules_method = "dualpipev"}).method, ScheduleMethod::kDualPipeV);
  EXPECT_EQ(schedule_settings({.schedules_method = "dualpipev", .dualpipev_dw_detach = true}).method,
            ScheduleMethod::kDualPipeVDetach);
  const layout::ScheduleSettings nano =
      schedule_settings({.use_nanopipe = true, .microbatch_group_size_per_virtual_pipeline_stage = 6});
  EXPECT_EQ(nano.method, ScheduleMethod::kNanoPipe);
  EXPECT_EQ(nano.microbatch_group_size, 6);
}

TEST(PipelineSchedule, PairsAreInterleavedWhereThereIsCommunicationToHide) {
  TrainerConfig config;
  const auto pairs = [&](const char* method, int tp) {
    config.parallel.schedules_method = method;
    config.parallel.tensor_model_parallel_size = tp;
    return config.schedule_settings().pairs;
  };
  EXPECT_TRUE(pairs("dualpipev", 2));
  EXPECT_FALSE(pairs("dualpipev", 1));
  EXPECT_FALSE(pairs("zb-v", 2));
  EXPECT_FALSE(config.schedule_settings().delays_weights_of_pairs);
  config.parallel.delay_wgrad_compute = true;
  EXPECT_TRUE(config.schedule_settings().delays_weights_of_pairs);
}

TEST(DeferEmbeddingWgrad, DefersTheLastMicrobatchesUpToTheLimit) {
  EXPECT_EQ(deferred_output_gradients({}, 8), 0);
  EXPECT_EQ(deferred_output_gradients({.wgrad_deferral_limit = 3}, 8), 0);
  EXPECT_EQ(deferred_output_gradients({.defer_embedding_wgrad_compute = true}, 8), 8);
  EXPECT_EQ(deferred_output_gradients({.defer_embedding_wgrad_compute = true, .wgrad_deferral_limit = 3}, 8), 3);
  EXPECT_EQ(deferred_output_gradients({.defer_embedding_wgrad_compute = true, .wgrad_deferral_limit = 9}, 8), 8);
}

TEST(RecomputePipelining, FlagsChooseTheTime) {
  EXPECT_EQ(recompute_time({}), layout::RecomputeTime::kAtBackward);
  EXPECT_EQ(recompute_time({.recompute_in_bubble = true}), layout::RecomputeTime::kInBubble);
  EXPECT_EQ(recompute_time({.recompute_in_advance = true}), layout::RecomputeTime::kInAdvance);
}

}  // namespace
}  // namespace ms::train
