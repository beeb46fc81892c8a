// Runs whose samples have a grid (--attention-mask-grid): what has a loss, what ranks that share sequences send, and
// files that are wrong. Against one rank, for each algorithm: context_table_test.cpp.
#include "train/features/attention_mask_grid.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/layout/adaptive_plan.h"
#include "tests/support/mask_grids.h"
#include "tests/support/tiny_run.h"
#include "train/data/sampler.h"

namespace ms {
namespace {

using test::TinyLayout;

constexpr int64_t kSeq = 64, kSamples = 4;  // of a step
constexpr int kSteps = 3;

// text: of the file; empty: without one.
std::vector<train::RunSummary> run_all(const TinyLayout& layout, const std::string& text, const char* type = "causal") {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.num_layers = 2;
  config.training.seq_length = kSeq;
  config.training.train_iters = kSteps;
  config.training.attention_mask_type = type;
  if (!text.empty()) {
    config.training.attention_mask_grid = folder.path() / "grid.txt";
    test::write_file(config.training.attention_mask_grid, text);
  }
  return test::run_all_on_threads(config, layout.ranks());
}
std::vector<double> losses(const std::string& text, const char* type = "causal") {
  const std::vector<train::RunSummary> ranks = run_all({}, text, type);
  std::vector<double> losses;
  for (const train::StepMetrics& step : ranks.front().steps) losses.push_back(step.loss);
  return losses;
}

std::string ones(int64_t cells) {
  return test::grid_text(cells, [](int64_t, int64_t) { return true; });
}

TEST(AttentionMaskGrid, OfOnesIsCausal) {
  const std::vector<double> causal = losses("");
  EXPECT_EQ(losses(ones(1)), causal);
  EXPECT_EQ(losses(ones(8)), causal);
  EXPECT_EQ(losses("", "general"), causal) << "without a grid the type has no effect";
  EXPECT_NE(losses(test::grid_text(8, test::block_cells(4))), causal);
}

// A general grid of the triangle has another one in its cells alone.
TEST(AttentionMaskGrid, OfTheTriangleIsCausalInCellsOfOnePosition) {
  const std::string triangle = test::grid_text(kSeq, [](int64_t query, int64_t key) { return key <= query; });
  const std::vector<double> causal = losses(""), general = losses(triangle, "general");
  EXPECT_EQ(losses(triangle), causal);
  ASSERT_EQ(general.size(), causal.size());
  for (size_t i = 0; i < causal.size(); ++i) EXPECT_NEAR(general[i], causal[i], 1e-5 * causal[i]);
}

// Position s predicts the token of position s + 1, which it sees if the grid is not causal and shows it.
TEST(AttentionMaskGrid, TokensThatAreSeenHaveNoLoss) {
  for (const bool is_causal : {true, false}) {
    const auto grid = test::make_grid(12, 6, is_causal, test::block_cells(2));
    train::Microbatch microbatch;
    microbatch.batch = 2, microbatch.seq = 12;
    microbatch.loss_mask.assign(24, 1.0F);
    train::apply_mask({.grid = grid}, microbatch);
    EXPECT_EQ(microbatch.grid, grid);
    for (int64_t s = 0; s < 12; ++s)
      for (int64_t b = 0; b < 2; ++b)
        EXPECT_EQ(microbatch.loss_mask[static_cast<size_t>(2 * s + b)], is_causal || s % 4 == 3 ? 1.0F : 0.0F) << s;
  }
}

// Adaptive algorithms send the blocks that the grid shows and no others, once in forward and twice as much back: of
// blocks on the diagonal fewer than a ring, or none.
TEST(AttentionMaskGrid, AdaptiveRanksSendWhatTheGridShows) {
  constexpr int kRanks = 4;
  const auto sent = [](const char* context, const std::string& text) {
    int64_t bytes = 0;
    for (const train::RunSummary& rank : run_all({1, 1, 1, 0, false, 1, "", "", kRanks, context}, text, "general")) {
      for (const auto& group : rank.communication)
        bytes += group[static_cast<size_t>(core::CommOp::kSend)].payload_bytes;
    }
    return bytes;
  };
  // K and V of 4 groups of 8 elements in fp32; 2 layers, of a step.
  constexpr int64_t kBlock = kSeq / kRanks * 2 * 4 * 8 * 4, kBlocks = 3 * 2 * kSamples;
  const int64_t ring = kRanks * (kRanks - 1) * kBlock * kBlocks;
  struct Blocks {
    int64_t cells;
    test::SeesCell sees;
    int64_t transfers;
  };
  for (const Blocks& of : {Blocks{8, test::block_cells(2), 0}, Blocks{8, test::block_cells(4), 4},
                           Blocks{8, [](int64_t query, int64_t key) { return query % 4 == key % 4; }, 0},
                           Blocks{8, [](int64_t query, int64_t key) { return key < 2 || query == key; }, 3}}) {
    const std::string text = test::grid_text(of.cells, of.sees);
    SCOPED_TRACE(text);
    EXPECT_EQ(sent("adaptive", text), of.transfers * kBlock * kBlocks);
    EXPECT_LT(of.transfers * kBlock * kBlocks, ring);
    EXPECT_EQ(sent("p2p", text), ring);
  }
}

// All ranks refuse a file that is wrong, with the flag and the exit code of what is wrong.
TEST(AttentionMaskGrid, FilesThatAreWrongEndTheRun) {
  struct Wrong {
    std::string text;
    core::ErrorCode code;
    const char* error;
  };
  for (const Wrong& of :
       {Wrong{"10\n1\n", core::ErrorCode::kCorruptData, "grid.txt: line 2: 1 cell, expected 2"},
        Wrong{"01\n11\n", core::ErrorCode::kCorruptData, "row 1 of 2 shows no key"},
        Wrong{ones(7), core::ErrorCode::kInvalidArgument, "--seq-length 64 is not a multiple of 7"}}) {
    try {
      run_all({1, 1, 1, 0, false, 1, "", "", 2, "adaptive"}, of.text);
      ADD_FAILURE() << of.text;
    } catch (const core::Error& e) {
      EXPECT_EQ(e.code(), of.code);
      const std::string error = e.what();
      EXPECT_NE(error.find("--attention-mask-grid"), std::string::npos) << error;
      EXPECT_NE(error.find(of.error), std::string::npos) << error;
    }
  }
}

}  // namespace
}  // namespace ms
