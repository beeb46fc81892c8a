// Runs whose samples have a prefix, the positions of which see each other (--sparse-mode 5, --prefix-length): what has
// a loss, and what ranks that share sequences send. Against one rank, for each algorithm: context_table_test.cpp.
#include "train/features/prefix_mask.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/layout/adaptive_plan.h"
#include "tests/support/tiny_run.h"
#include "train/data/sampler.h"

namespace ms {
namespace {

using test::TinyLayout;

constexpr int64_t kSeq = 64, kSamples = 4;  // of a step
constexpr int kSteps = 3;

std::vector<train::RunSummary> run_all(const TinyLayout& layout, int64_t prefix) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.num_layers = 2;
  config.training.seq_length = kSeq;
  config.training.train_iters = kSteps;
  if (prefix > 0) {
    config.training.sparse_mode = 5;
    config.training.prefix_length = prefix;
  }
  return test::run_all_on_threads(config, layout.ranks());
}
std::vector<double> losses(const TinyLayout& layout, int64_t prefix) {
  const std::vector<train::RunSummary> ranks = run_all(layout, prefix);
  std::vector<double> losses;
  for (const train::StepMetrics& step : ranks.front().steps) losses.push_back(step.loss);
  return losses;
}

TEST(PrefixMask, OfOnePositionIsCausal) {
  const std::vector<double> causal = losses({}, 0);
  EXPECT_EQ(losses({}, 1), causal);
  EXPECT_NE(losses({}, 2), causal);
}

// Position s predicts the token of position s + 1, which the positions of the prefix see.
TEST(PrefixMask, TokensThatAreSeenHaveNoLoss) {
  for (const int64_t prefix : {0, 1, 2, 5}) {
    train::Microbatch microbatch;
    microbatch.batch = 2, microbatch.seq = 5;
    microbatch.loss_mask.assign(10, 1.0F);
    train::apply_mask({.prefix = prefix}, microbatch);
    for (int64_t s = 0; s < 5; ++s)
      for (int64_t b = 0; b < 2; ++b)
        EXPECT_EQ(microbatch.loss_mask[static_cast<size_t>(2 * s + b)], s + 1 < prefix ? 0.0F : 1.0F)
            << "a prefix of " << prefix << ", position " << s;
  }
}

// Adaptive algorithms send fewer bytes than a ring of as many ranks, and those of their plan: a block in forward, and
// twice as much back. A ring sends each block to all others.
TEST(PrefixMask, AdaptiveRanksSendWhatThePlanSaysAndLessThanARing) {
  constexpr int kRanks = 4;
  const auto sent = [](const char* context, int64_t prefix) {
    int64_t bytes = 0;
    for (const train::RunSummary& rank : run_all({1, 1, 1, 0, false, 1, "", "", kRanks, context}, prefix)) {
      for (const auto& group : rank.communication)
        bytes += group[static_cast<size_t>(core::CommOp::kSend)].payload_bytes;
    }
    return bytes;
  };
  // K and V of 4 groups of 8 elements in fp32; 2 layers, of a step.
  constexpr int64_t kBlock = kSeq / kRanks * 2 * 4 * 8 * 4, kBlocks = 3 * 2 * kSamples;
  for (const int64_t prefix : {16, 17, 40}) {
    SCOPED_TRACE(core::cat("a prefix of ", prefix));
    const auto plan = layout::plan_documents(kSeq, kRanks, {}, layout::PositionOrder::kOfClusters, prefix);
    const int64_t adaptive = sent("adaptive", prefix), ring = sent("p2p", prefix);
    EXPECT_EQ(adaptive, plan->transfers() * kBlock * kBlocks);
    EXPECT_EQ(ring, kRanks * (kRanks - 1) * kBlock * kBlocks);
    EXPECT_LT(adaptive, ring);
  }
}

}  // namespace
}  // namespace ms
