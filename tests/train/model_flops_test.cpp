#include <gtest/gtest.h>

#include "core/layout/formulas/flops.h"
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

// PaLM's 6 N + 12 L H Q T, computed by hand, with N the weights of products, and half of attention because of the mask.
TEST(ModelFlops, EqualPalmAppendixB) {
  core::TransformerConfig model;  // GPT-2 124M
  model.num_layers = 12;
  model.hidden_size = 768;
  model.num_attention_heads = 12;
  model.vocab_size = 50257;
  model.resolve(1024);
  const double weights = 12 * (12.0 * 768 * 768) + 768.0 * 50304;
  const double attention = 12.0 * 12 * 12 * 64 * 1024 / 2;
  EXPECT_EQ(static_cast<double>(layout::model_flops_per_sample(model, 1024, 1)), 1024 * (6 * weights + attention));
  EXPECT_GT(layout::model_flops_per_sample(model, 1024, 8), layout::model_flops_per_sample(model, 1024, 1))
      << "rows that pad the vocabulary are multiplied too";
}

// A window of w keys leaves w (s - w / 2) of the scores. Counted whole, a step would seem faster than the machine.
TEST(ModelFlops, CountOnlyTheScoresWithinAWindow) {
  core::TransformerConfig model;
  model.num_layers = 3;
  model.hidden_size = 64;
  model.num_attention_heads = 4;
  model.vocab_size = 128;
  model.position_embedding_type = "rope";
  model.resolve(1024);
  const double whole = static_cast<double>(layout::model_flops_per_sample(model, 1024, 1));
  model.sliding_window = 64;
  const double windowed = static_cast<double>(layout::model_flops_per_sample(model, 1024, 1));
  EXPECT_EQ(whole - windowed, 12.0 * 3 * 64 * (1024.0 * 1024 / 2 - 64 * (1024 - 32.0)));
  model.window_attn_skip_freq = "3";  // the last layer sees all
  const double mixed = static_cast<double>(layout::model_flops_per_sample(model, 1024, 1));
  EXPECT_EQ(whole - mixed, (whole - windowed) * 2 / 3);
  model.sliding_window = 2000;
  EXPECT_EQ(static_cast<double>(layout::model_flops_per_sample(model, 1024, 1)), whole);
}

TEST(ModelFlops, EqualExecutedFlopsWithoutRecomputation) {
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{2, 2, 1, false, true}, TinyLayout{1, 1, 2, true, false}}) {
    for (const bool gpt : {false, true}) {
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.training.train_iters = 2;
      if (gpt) {
        config.model.swiglu = false;
        config.model.group_query_attention = false;
        config.model.num_query_groups = 1;
        config.model.untie_embeddings_and_output_weights = false;
        config.training.loss_chunk_size = 5;
        config.model.sliding_window = 5;
        config.model.window_attn_skip_freq = "2";
      }
      const Flops flops = of_a_step(config, layout.ranks());
      EXPECT_NEAR(flops.executed, flops.model, 1e-9 * flops.model) << layout.name() << (gpt ? " gpt" : "");
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
