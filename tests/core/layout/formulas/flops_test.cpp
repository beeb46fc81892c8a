#include "core/layout/formulas/flops.h"

#include <gtest/gtest.h>

#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

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
  EXPECT_EQ(static_cast<double>(model_flops_per_sample(model, 1024, 1)), 1024 * (6 * weights + attention));
  EXPECT_GT(model_flops_per_sample(model, 1024, 8), model_flops_per_sample(model, 1024, 1))
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
  const double whole = static_cast<double>(model_flops_per_sample(model, 1024, 1));
  model.sliding_window = 64;
  const double windowed = static_cast<double>(model_flops_per_sample(model, 1024, 1));
  EXPECT_EQ(whole - windowed, 12.0 * 3 * 64 * (1024.0 * 1024 / 2 - 64 * (1024 - 32.0)));
  model.window_attn_skip_freq = "3";  // the last layer sees all
  const double mixed = static_cast<double>(model_flops_per_sample(model, 1024, 1));
  EXPECT_EQ(whole - mixed, (whole - windowed) * 2 / 3);
  model.sliding_window = 2000;
  EXPECT_EQ(static_cast<double>(model_flops_per_sample(model, 1024, 1)), whole);
}

// What the stages execute together is what the model needs, and recomputation adds to it.
TEST(ExecutedFlops, OfAllRanksAreTheModelsWithoutRecomputation) {
  TrainingStep step{.model = test::small_model(64), .seq_length = 16, .num_microbatches = 3};
  step.layout = {.tensor_model_parallel_size = 2, .pipeline_model_parallel_size = 2, .data_parallel_size = 2};
  const auto all_ranks = [&] {
    int64_t sum = 0;
    for (int rank = 0; rank < 8; ++rank) sum += executed_flops(step, rank);
    return sum;
  };
  const int64_t needed = model_flops_per_sample(step.model, 16, 2) * 3 * 2;
  EXPECT_EQ(all_ranks(), needed);
  step.recompute = RecomputePlan({.granularity = "full", .method = "uniform", .num_layers = 1});
  EXPECT_GT(all_ranks(), needed);
}

}  // namespace
}  // namespace ms::layout
