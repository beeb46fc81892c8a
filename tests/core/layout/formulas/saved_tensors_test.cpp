#include "core/layout/formulas/saved_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/error.h"
#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

TrainingStep step_of(int64_t layers, int stages, int chunks) {
  TrainingStep step{.model = test::small_model(64), .seq_length = 4, .num_microbatches = 8};
  step.model.num_layers = layers;
  step.model.qk_layernorm = false;
  step.layout = {.pipeline_model_parallel_size = stages, .virtual_pipeline_model_parallel_size = chunks};
  return step;
}

// "0-3,6-6 x8: -a >b": in 8 micro-batches layers 0 to 3 and 6 recompute a and swap b; what is kept is not listed.
std::vector<std::string> listed(const TrainingStep& step) {
  std::vector<std::string> lines;
  for (const SavedTensorsRow& row : saved_tensors(step)) {
    std::string line;
    for (const LayerRange& range : row.layers)
      line += core::cat(line.empty() ? "" : ",", range.first, "-", range.first + range.count - 1);
    line += core::cat(" x", row.microbatches, ":");
    for (const SavedSlot slot : row.recompute) line += core::cat(" -", slot_name(slot));
    for (const SavedSlot slot : row.swap) line += core::cat(" >", slot_name(slot));
    lines.push_back(std::move(line));
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(SavedTensors, AreKeptByDefault) {
  const TrainingStep step = step_of(4, 2, 2);
  EXPECT_EQ(listed(step), Lines{"0-3 x8:"});
  const SavedTensorsRow row = saved_tensors(step).front();
  EXPECT_EQ(row.keep.size(), kNumSavedSlots - 16) << "neither norms of heads, nor norms behind the blocks, nor "
                                                     "experts, nor latent attention, nor gates, nor ranks that "
                                                     "share sequences";
  TrainingStep all = step;
  all.model.qk_layernorm = all.model.post_norm = true;
  EXPECT_EQ(saved_tensors(all).front().keep.size(), kNumSavedSlots - 8);
}

TEST(SavedTensors, OfLayersWithExpertsAreARowOfTheirOwn) {
  TrainingStep step = step_of(4, 2, 2);
  step.model.num_experts = 4;
  step.model.moe_router_topk = 2;
  step.model.moe_ffn_hidden_size = 8;
  step.model.moe_layer_freq = "2";
  EXPECT_EQ(listed(step), (Lines{"0-0,2-2 x8:", "1-1,3-3 x8:"}));
  const std::vector<SavedTensorsRow> rows = saved_tensors(step);
  EXPECT_EQ(
      std::ranges::count(rows[1].keep, SavedSlot::kRouting) + std::ranges::count(rows[0].keep, SavedSlot::kRouting), 1);
  EXPECT_EQ(std::ranges::count(rows[1].keep, SavedSlot::kShared), 0) << "there are no shared experts";
}

TEST(SavedTensors, OfEqualLayersAreOneRow) {
  TrainingStep step = step_of(8, 2, 1);
  step.recompute = RecomputePlan({.granularity = "full", .method = "block", .num_layers = 1, .activation = true});
  const Lines lines = listed(step);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(saved_tensors(step)[0].keep, std::vector<SavedSlot>{SavedSlot::kInput});
  EXPECT_EQ(lines[0].substr(0, 12), "0-0,4-4 x8: ");
  EXPECT_EQ(lines[1], "1-3,5-7 x8: -product");
}

// The last layer of the last stage stays, because its backward follows; what is small stays anywhere.
TEST(SavedTensors, AreSwappedWhereTheyAreLargeEnough) {
  TrainingStep step = step_of(4, 2, 1);
  step.swap = {.self_attention = true, .post_attention_norm = true, .min_bytes = 0};
  EXPECT_EQ(listed(step), (Lines{"0-2 x8: >q >k >v >out >lse >post_attention_norm", "3-3 x8:"}));
  step.swap.min_bytes = 4 * 24 * 4;  // of fp32 [4 tokens, 24]: keys and values have half as many elements
  EXPECT_EQ(listed(step), (Lines{"0-2 x8: >q >out >post_attention_norm", "3-3 x8:"}));
}

TEST(SavedTensors, OfMicrobatchesThatDifferAreSeveralRows) {
  TrainingStep step = step_of(8, 4, 2);
  step.schedule.recompute = RecomputeTime::kInBubble;
  step.recompute = RecomputePlan({.granularity = "full", .method = "chunk"});
  std::vector<int64_t> microbatches(8);
  bool differ = false;
  for (const SavedTensorsRow& row : saved_tensors(step)) {
    differ |= row.microbatches < 8;
    for (const LayerRange& range : row.layers) {
      for (int64_t layer = range.first; layer < range.first + range.count; ++layer)
        microbatches[static_cast<size_t>(layer)] += row.microbatches;
    }
  }
  EXPECT_TRUE(differ);
  EXPECT_EQ(microbatches, std::vector<int64_t>(8, 8)) << "each has a row";
}

}  // namespace
}  // namespace ms::layout
