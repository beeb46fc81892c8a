// Recomputation drops activations and changes no bit.
#include <gtest/gtest.h>

#include "tests/support/tiny_run.h"
#include "train/memory/activations.h"

namespace ms {
namespace {

train::RunSummary run(const std::string& method, int64_t layers, const test::TinyLayout& layout) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.train_iters = 5;
  config.training.micro_batch_size = 2;
  if (!method.empty()) {
    config.training.recompute_granularity = "full";
    config.training.recompute_method = method;
    config.training.recompute_num_layers = layers;
  }
  return test::run_on_threads(config, layout.ranks());
}

int64_t peak_activations(const train::RunSummary& summary) {
  return summary.steps.back().peak_bytes[static_cast<size_t>(core::MemoryTag::kAct)];
}

TEST(Recompute, ChangesNoBitAndHoldsLess) {
  for (const test::TinyLayout& layout : {test::TinyLayout{}, test::TinyLayout{2, 1, 1, false, true}}) {
    const auto plain = run("", 0, layout);
    int64_t previous = peak_activations(plain);
    for (const auto& [method, layers] : {std::pair{"block", 2}, std::pair{"uniform", 1}}) {
      const auto recomputed = run(method, layers, layout);
      for (size_t i = 0; i < plain.steps.size(); ++i) {
        EXPECT_EQ(recomputed.steps[i].loss, plain.steps[i].loss) << method << " step " << i + 1;
        EXPECT_EQ(recomputed.steps[i].grad_norm, plain.steps[i].grad_norm) << method << " step " << i + 1;
      }
      EXPECT_LT(peak_activations(recomputed), previous) << method;
      EXPECT_GT(recomputed.steps.back().tflops_per_rank, 0);
      previous = peak_activations(recomputed);
    }
  }
}

TEST(RecomputePlan, BlockTakesTheFirstLayersUniformAllInGroups) {
  const train::RecomputePlan block("full", "block", 2, 4);
  EXPECT_TRUE(block.recomputes(1));
  EXPECT_FALSE(block.recomputes(2));
  const train::RecomputePlan uniform("full", "uniform", 3, 4);
  EXPECT_TRUE(uniform.recomputes(3));
  EXPECT_EQ(uniform.group_begin(2), 0);
  EXPECT_EQ(uniform.group_end(2), 3);
  EXPECT_EQ(uniform.group_begin(3), 3);
  EXPECT_EQ(uniform.group_end(3), 4);
}

}  // namespace
}  // namespace ms
