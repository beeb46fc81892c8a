#include <gtest/gtest.h>

#include <string>

#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::TinyLayout;

// FLOPs of a step on all ranks: executed, and needed by the model.
struct Flops {
  double executed, model;
};
Flops of_a_step(const train::TrainerConfig& config, int ranks) {
  const train::StepMetrics step = test::run_on_threads(config, ranks).steps.back();
  const double all = step.seconds * ranks * 1e12;
  return {step.hardware_tflops_per_rank * all, step.tflops_per_rank * all};
}

TEST(ModelFlops, EqualExecutedFlopsWithoutRecomputation) {
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{2, 2, 1, false, true}, TinyLayout{1, 1, 2, true, false}}) {
    for (const std::string model : {"prefix", "gpt", "grid"}) {
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.training.train_iters = 2;
      if (model == "gpt") {
        config.model.swiglu = false;
        config.model.group_query_attention = false;
        config.model.num_query_groups = 1;
        config.model.untie_embeddings_and_output_weights = false;
        config.training.loss_chunk_size = 5;
        config.model.sliding_window = 5;
        config.model.window_attn_skip_freq = "2";
      } else if (model == "grid") {
        config.training.attention_mask_grid = MS_TEST_DATA "/train/mask_grids/causal_8.txt";
      } else {
        config.training.sparse_mode = 5;
        config.training.prefix_length = 6;
      }
      const Flops flops = of_a_step(config, layout.ranks());
      EXPECT_NEAR(flops.executed, flops.model, 1e-9 * flops.model) << layout.name() << " " << model;
    }
  }
}

// Recomputation leaves the model's FLOPs unchanged (MFU) and adds to the executed ones (HFU).
TEST(ModelFlops, ExcludeRecomputation) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 2;
  const Flops plain = of_a_step(config, 1);
  config.training.recompute_granularity = "full";
  config.training.recompute_method = "uniform";
  config.training.recompute_num_layers = 1;
  const Flops recomputed = of_a_step(config, 1);
  EXPECT_NEAR(recomputed.model, plain.model, 1e-9 * plain.model);
  EXPECT_GT(recomputed.executed, 1.15 * plain.executed);
}

}  // namespace
}  // namespace ms
