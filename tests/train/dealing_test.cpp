// Runs with --hybrid-context-parallel: the samples of a step are the same, and every rank has about as much to compute.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/layout/formulas/flops.h"
#include "tests/support/log_normal_documents.h"
#include "tests/support/tiny_run.h"
#include "train/plan.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 256;
constexpr int64_t kSamplesOfRank = 8;  // in a step

class Dealing : public testing::Test {
 protected:
  TrainerConfig config(const test::TinyLayout& layout, bool deals) {
    const std::string prefix = (folder_.path() / "documents").string();
    if (!std::filesystem::exists(idx_path(prefix)))
      test::write_documents(prefix, test::log_normal_lengths(600, 40, 1.2, 3));
    TrainerConfig config = test::tiny_config(folder_.path(), layout);
    config.data.data_path = {prefix};
    config.training.seq_length = kSeq;
    config.training.global_batch_size = 4 * kSamplesOfRank;
    config.training.train_iters = 3;
    config.training.calculate_per_token_loss = true;
    config.training.reset_attention_mask = config.training.reset_position_ids = true;
    config.parallel.hybrid_context_parallel = deals;
    if (deals) config.parallel.max_seqlen_per_dp_cp_rank = kSeq / layout.cp;
    return config;
  }

  test::TemporaryFolder folder_;
};

// Of a step: products of attention, forward and backward, that each rank of pure data parallelism has executed.
std::vector<double> attention_of_ranks(const TrainerConfig& config, const std::vector<RunSummary>& ranks, size_t step) {
  core::TransformerConfig model = config.model;
  model.vocab_size = 257;
  model.resolve(kSeq);
  const int64_t weights = layout::model_flops_per_sample(model, kSeq, 1) - layout::attention_flops(model, kSeq);
  std::vector<double> attention;
  for (const RunSummary& rank : ranks)
    attention.push_back(static_cast<double>(rank.steps[step].executed_flops - kSamplesOfRank * weights));
  return attention;
}

double slowest(const std::vector<double>& ranks) {
  double all = 0;
  for (const double rank : ranks) all += rank;
  return *std::max_element(ranks.begin(), ranks.end()) * static_cast<double>(ranks.size()) / all;
}

TEST_F(Dealing, BringsTheSlowestOf4RanksWithinATenthOfTheMeanAttention) {
  const TrainerConfig dealt = config({1, 1, 4}, true), in_order = config({1, 1, 4}, false);
  const auto dealt_ranks = test::run_all_on_threads(dealt, 4), other_ranks = test::run_all_on_threads(in_order, 4);
  double worst_in_order = 1;
  for (size_t step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    EXPECT_LT(slowest(attention_of_ranks(dealt, dealt_ranks, step)), 1.1);
    worst_in_order = std::max(worst_in_order, slowest(attention_of_ranks(in_order, other_ranks, step)));
    // What the log line says is what the ranks have executed.
    const StepMetrics& m = dealt_ranks[0].steps[step];
    ASSERT_TRUE(m.dealt);
    EXPECT_FALSE(other_ranks[0].steps[step].dealt);
    std::vector<double> executed, executed_in_order;
    for (const RunSummary& rank : dealt_ranks) executed.push_back(static_cast<double>(rank.steps[step].executed_flops));
    for (const RunSummary& rank : other_ranks)
      executed_in_order.push_back(static_cast<double>(rank.steps[step].executed_flops));
    EXPECT_NEAR(m.dealt->slowest, slowest(executed), 1e-9);
    EXPECT_NEAR(m.dealt->slowest_in_order, slowest(executed_in_order), 1e-9);
  }
  EXPECT_GT(worst_in_order, 1.15);
}

TEST_F(Dealing, ChangesOnlyTheRoundingOfTheLossInEveryLayout) {
  const test::TinyLayout layouts[] = {{1, 1, 4},
                                      {1, 1, 4, 1},
                                      {1, 1, 2, 3},
                                      {1, 2, 2},
                                      {1, 2, 2, 2, false, 1, "zb-v"},
                                      {2, 1, 2, 1, true},
                                      {.dp = 2, .cp = 2, .context = "p2p"},
                                      {.pp = 2, .dp = 2, .zero = 1, .cp = 2, .context = "a2a"}};
  const RunSummary one = test::run_on_threads(config({}, false), 1);
  for (const test::TinyLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    const RunSummary seen = test::run_on_threads(config(layout, true), layout.ranks());
    ASSERT_EQ(seen.steps.size(), one.steps.size());
    for (size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_NEAR(seen.steps[i].loss, one.steps[i].loss, 1e-5 * one.steps[i].loss) << "step " << i + 1;
      EXPECT_NEAR(seen.steps[i].grad_norm, one.steps[i].grad_norm, 1e-4 * one.steps[i].grad_norm) << "step " << i + 1;
      EXPECT_EQ(seen.steps[i].tokens, one.steps[i].tokens);
      EXPECT_LT(seen.steps[i].dealt->slowest, seen.steps[i].dealt->slowest_in_order);
    }
  }
}

TEST_F(Dealing, IsPlanned) {
  const auto planned = [&](bool deals) {
    TrainerConfig run = config({1, 1, 4}, deals);
    run.model.vocab_size = 257;
    run.resolve_and_validate(4);
    return RunPlan(run.training_step(4), active_features(run), {});
  };
  const std::string text = planned(true).text();
  EXPECT_NE(
      text.find("samples dealt to replicas by their FLOPs\n  32 in a step, to 4 replicas in 8 rounds of 1 to each"),
      std::string::npos)
      << text;
  EXPECT_EQ(planned(true).json()["dealing"]["rounds"], 8);
  EXPECT_EQ(planned(false).text().find("samples dealt"), std::string::npos);
  EXPECT_FALSE(planned(false).json().contains("dealing"));
}

// Masks of dropout are functions of the sample, wherever it is computed.
TEST_F(Dealing, ChangesOnlyTheRoundingOfTheLossWithDropout) {
  const auto with_dropout = [&](const test::TinyLayout& layout, bool deals) {
    TrainerConfig changed = config(layout, deals);
    changed.model.hidden_dropout = changed.model.attention_dropout = 0.2;
    return test::run_on_threads(changed, layout.ranks());
  };
  const RunSummary one = with_dropout({}, false), dealt = with_dropout({1, 1, 4}, true);
  for (size_t i = 0; i < one.steps.size(); ++i)
    EXPECT_NEAR(dealt.steps[i].loss, one.steps[i].loss, 1e-5 * one.steps[i].loss) << "step " << i + 1;
}

}  // namespace
}  // namespace ms::train
