// Micro-batches as long as their longest document: the loss and gradients of padded ones, in less memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/log_normal_documents.h"
#include "tests/train/own_length_step.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 64;

const std::vector<int64_t> kLengths = {5, 64, 17, 1, 33, 8, 60, 2};
const test::TinyLayout kLayouts[] = {{},
                                     {1, 2, 1},
                                     {1, 2, 1, 0, false, 2},
                                     {1, 2, 1, 0, false, 1, "zb-v"},
                                     {2, 1, 1},
                                     {2, 1, 1, 0, true},
                                     {2, 2, 1, 0, true, 1, "", "coc2"},
                                     {.cp = 2, .context = "a2a"},
                                     {.cp = 2, .context = "all_gather"},
                                     {.cp = 2, .context = "p2p"},
                                     {.cp = 2, .context = "a2a,p2p,all_gather"},
                                     {.tp = 2, .pp = 2, .sp = true, .cp = 2, .context = "p2p"}};

TEST(VariableLengths, GiveLossAndGradientsOfPaddedMicroBatches) {
  const test::OwnLengthDocuments documents(kSeq, kLengths);
  const double one = step_of_lengths({}, documents, Lengths::kPadded).loss;
  for (const test::TinyLayout& layout : kLayouts) {
    SCOPED_TRACE(layout.name());
    const LengthsOutcome own = step_of_lengths(layout, documents, Lengths::kOwn);
    const LengthsOutcome padded = step_of_lengths(layout, documents, Lengths::kPadded);
    EXPECT_EQ(padded.seqs, std::vector<int64_t>(kLengths.size(), kSeq));
    for (size_t m = 0; m < kLengths.size(); ++m) {
      EXPECT_GE(own.seqs[m], kLengths[m]);
      EXPECT_LT(own.seqs[m], kLengths[m] + 2 * 2 * 2);  // rounded up to the parts of sequences
    }
    EXPECT_NEAR(own.loss, padded.loss, 1e-6 * padded.loss);
    EXPECT_NEAR(own.loss, one, 1e-5 * one);
    EXPECT_LT(test::largest_distance(own.gradients, padded.gradients), 1e-5);
  }
}

TEST(VariableLengths, GoWithOtherFeatures) {
  const test::OwnLengthDocuments documents(kSeq, kLengths);
  std::vector<test::ConfigChange> changes = test::changes_beside_own_lengths();
  changes.emplace_back([](TrainerConfig& config) { config.model.hidden_dropout = 0.2; });
  changes.emplace_back([](TrainerConfig& config) { config.training.optimization_level = 0; });
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    const LengthsOutcome own = step_of_lengths({1, 2, 1}, documents, Lengths::kOwn, changes[i]);
    const LengthsOutcome padded = step_of_lengths({1, 2, 1}, documents, Lengths::kPadded, changes[i]);
    EXPECT_NEAR(own.loss, padded.loss, 1e-6 * padded.loss);
    EXPECT_LT(test::largest_distance(own.gradients, padded.gradients), 1e-5);
  }
}

// The first of two stages has the micro-batches of two forwards before the first backward.
TEST(VariableLengths, HoldWhatTheLongestInFlightNeed) {
  const test::TinyLayout layout{1, 2, 1};
  const auto peak = [&](std::vector<int64_t> lengths) {
    return static_cast<double>(step_of_lengths(layout, {kSeq, std::move(lengths)}, Lengths::kOwn).act_peak);
  };
  const double longest = peak({64, 64, 64, 64}), shortest = peak({8, 8, 8, 8});
  EXPECT_GT(longest, 6 * shortest);
  EXPECT_NEAR(peak({8, 64, 64, 8}), longest, 0.1 * longest);
  // One of the two in flight is long.
  const double of_one = peak({8, 8, 64, 8, 8, 8});
  EXPECT_LT(of_one, 0.75 * longest);
  EXPECT_GT(of_one, 0.45 * longest);
}

TEST(VariableLengths, RunsAgreeWithOneRankInEveryLayout) {
  test::TemporaryFolder folder;
  const std::string prefix = (folder.path() / "documents").string();
  const std::vector<int64_t> lengths = test::log_normal_lengths(60, 20, 1, 3);
  test::write_documents(prefix, lengths);
  const auto run = [&](const test::TinyLayout& layout, bool deals) {
    TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.data.data_path = {prefix};
    config.training.seq_length = kSeq;
    config.training.global_batch_size = 12;
    config.training.train_iters = 5;  // one epoch
    config.training.calculate_per_token_loss = true;
    config.parallel.variable_seq_lengths = true;
    config.parallel.hybrid_context_parallel = deals;
    if (deals) config.parallel.max_seqlen_per_dp_cp_rank = kSeq;
    return test::run_on_threads(config, layout.ranks());
  };
  const RunSummary one = run({}, false);
  int64_t tokens = 0, read = 0;
  for (const int64_t length : lengths) tokens += std::min(length - 1, kSeq);
  for (const StepMetrics& step : one.steps) {
    read += step.tokens;
    // Padding takes FLOPs of the hardware, not of the model; one rank pads nothing.
    EXPECT_NEAR(step.tflops_per_rank, step.hardware_tflops_per_rank, 1e-9 * step.tflops_per_rank);
  }
  EXPECT_EQ(read, tokens);
  for (const test::TinyLayout& layout : {test::TinyLayout{1, 2, 2, 1}, test::TinyLayout{2, 1, 2, 3, true},
                                         test::TinyLayout{.pp = 2, .dp = 2, .cp = 2, .context = "p2p"}}) {
    for (const bool deals : {false, true}) {
      SCOPED_TRACE(core::cat(layout.name(), deals ? " dealt" : ""));
      const RunSummary seen = run(layout, deals);
      for (size_t i = 0; i < one.steps.size(); ++i) {
        EXPECT_NEAR(seen.steps[i].loss, one.steps[i].loss, 1e-5 * one.steps[i].loss) << "step " << i + 1;
        EXPECT_EQ(seen.steps[i].tokens, one.steps[i].tokens);
      }
    }
  }
}

}  // namespace
}  // namespace ms::train
