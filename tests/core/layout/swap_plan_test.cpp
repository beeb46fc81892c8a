#include "core/layout/swap_plan.h"

#include <gtest/gtest.h>

namespace ms::layout {
namespace {

// The last stage of 1F1B turns around at once, those before it after the micro-batches that they warm up with.
TEST(TurnAround, IsWhereABackwardFollowsItsForward) {
  constexpr int64_t kMicrobatches = 4;
  EXPECT_EQ(turn_around(schedule_1f1b(1, 2, kMicrobatches), 1, kMicrobatches), std::vector<bool>(4, true));
  EXPECT_EQ(turn_around(schedule_1f1b(0, 2, kMicrobatches), 1, kMicrobatches), std::vector<bool>(4, false));
  EXPECT_EQ(turn_around(schedule_zb_h1(1, 2, kMicrobatches), 1, kMicrobatches), std::vector<bool>(4, true));
  // In a V the first stage has the first chunk and the last, which turns around.
  const std::vector<bool> v = turn_around(schedule_dualpipe_v(0, 2, kMicrobatches, false), 2, kMicrobatches);
  for (int64_t m = 0; m < kMicrobatches; ++m) EXPECT_FALSE(v[static_cast<size_t>(2 * m)]) << m;
  EXPECT_TRUE(v[1]);
}

// Nano-pipe: the last of its two stages is two chunk-backwards late, the first computes weights' gradients at once.
TEST(WeightsWait, UnlessBothPartsOfABackwardAreNeighbours) {
  constexpr int64_t kMicrobatches = 4;
  constexpr int kChunks = 2;
  const auto waits = [&](int stage) {
    return weights_wait(schedule_nanopipe(stage, 2, kChunks, kMicrobatches, 2), kChunks, kMicrobatches);
  };
  EXPECT_EQ(waits(0), std::vector<bool>(kMicrobatches * kChunks, false));
  EXPECT_EQ(waits(1), std::vector<bool>(kMicrobatches * kChunks, true));
  EXPECT_EQ(weights_wait(schedule_1f1b(1, 2, kMicrobatches), 1, kMicrobatches), std::vector<bool>(4, false));
}

TEST(SwapPlan, MovesWholeBlocksOfWhatIsLargeEnough) {
  const SwapPlan plan{.self_attention = true, .min_bytes = 100};
  const SwappedBytes moved = plan.moved({99, 100, 4096, 4097});
  EXPECT_EQ(moved.of_memory, 100 + 4096 + 4097);
  EXPECT_EQ(moved.of_tier, 4096 + 4096 + 8192);
}

TEST(SwapPlan, MovesNothingByDefault) {
  EXPECT_FALSE(SwapPlan().any());
  for (const SavedSlotProperties& of : kSavedSlots) EXPECT_FALSE(SwapPlan().moves(of.slot)) << of.name;
  EXPECT_TRUE(SwapPlan({.post_attention_norm = true}).any());
}

}  // namespace
}  // namespace ms::layout
