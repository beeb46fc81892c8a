// Clock offsets derived from common operations, compared with known offsets.
#include "profile/analysis/clock_alignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace ms::profile {
namespace {

constexpr int64_t kMs = 1'000'000;

// Messages that end at the same instant on both sides, recorded by clocks with known offsets.
class ClockAlignmentTest : public testing::Test {
 protected:
  static constexpr std::array<int64_t, 4> kOffset = {0, 3 * kMs, -2 * kMs, 7 * kMs};

  ClockAlignmentTest() {
    for (size_t r = 0; r < kOffset.size(); ++r) {
      traces_[r].rank = static_cast<int>(r);
      ranks_.push_back({&traces_[r], &view_});
    }
  }
  // late: how much later the receiver's end is recorded than the sender's.
  void message(uint32_t from, uint32_t to, int64_t end, int64_t late = 0) {
    CommInstance message;
    message.type = "send";
    message.kind = CommKind::kSend;
    for (const uint32_t rank : {from, to}) {
      const int64_t at = end + kOffset[rank] + (rank == to ? late : 0);
      message.parts.push_back({rank, 0, at - 10'000, at});
    }
    comms_.messages.push_back(message);
  }
  ClockAlignment align(AlignMode mode = AlignMode::kOffset) const { return align_clocks(ranks_, comms_, mode); }

  std::array<RankTrace, kOffset.size()> traces_;
  DeviceView view_;
  std::vector<RankDevices> ranks_;
  MatchedComms comms_;
};

TEST_F(ClockAlignmentTest, RanksOfARingWithOneMessageEachAreCheckedByItsCycle) {
  for (uint32_t r = 0; r < 4; ++r) message(r, (r + 1) % 4, (10 + r) * kMs);
  const ClockAlignment clocks = align();
  EXPECT_TRUE(clocks.reliable) << clocks.why;
  for (size_t r = 1; r < 4; ++r) EXPECT_EQ(clocks.ranks[r].offset, kOffset[r]) << r;
}

TEST_F(ClockAlignmentTest, CycleThatDoesNotCloseIsRefusedWithTheTimeByWhichItDoesNot) {
  for (uint32_t r = 0; r < 4; ++r) message(r, (r + 1) % 4, (10 + r) * kMs, r == 3 ? 400'000 : 0);
  const ClockAlignment clocks = align();
  EXPECT_FALSE(clocks.reliable);
  EXPECT_THAT(clocks.why, testing::HasSubstr(" us on rank "));
}

TEST_F(ClockAlignmentTest, RankIsPlacedByAllMessagesToAllPlacedRanks) {
  for (int64_t i = 0; i < 2; ++i) {
    message(0, 1, (10 + i) * kMs);
    message(0, 2, (20 + i) * kMs);
  }
  // One message each with three ranks, of which one was late: the median is right, and no pair of ranks has two
  // messages.
  message(1, 3, 30 * kMs);
  message(2, 3, 31 * kMs, 20'000);
  message(0, 3, 32 * kMs);
  const ClockAlignment clocks = align();
  EXPECT_TRUE(clocks.reliable) << clocks.why;
  EXPECT_EQ(clocks.ranks[3].offset, kOffset[3]);
  EXPECT_EQ(clocks.ranks[3].samples, 3);
}

TEST_F(ClockAlignmentTest, RankWithOneMessageIsRefusedAndNamed) {
  for (int64_t i = 0; i < 2; ++i) {
    message(0, 1, (10 + i) * kMs);
    message(0, 2, (20 + i) * kMs);
  }
  message(2, 3, 30 * kMs);
  const ClockAlignment clocks = align();
  EXPECT_FALSE(clocks.reliable);
  EXPECT_THAT(clocks.why, testing::StartsWith("rank 3 shares one operation with the others"));
}

TEST_F(ClockAlignmentTest, NoneIsNeverRefusedAndMovesNothing) {
  for (uint32_t r = 0; r < 3; ++r) message(r, r + 1, 10 * kMs, 900'000 * (r % 2));
  const ClockAlignment clocks = align(AlignMode::kNone);
  EXPECT_TRUE(clocks.reliable);
  EXPECT_EQ(clocks.alignment, Alignment::kNone);
  for (const RankClock& clock : clocks.ranks) EXPECT_EQ(clock.to_reference(123), 123);
  comms_.messages.clear();
  EXPECT_TRUE(align(AlignMode::kNone).reliable) << "without anything in common";
}

}  // namespace
}  // namespace ms::profile
