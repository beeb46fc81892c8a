#include "core/layout/buffer_sections.h"

#include <gtest/gtest.h>

namespace ms::layout {
namespace {

constexpr bool kTrains = true, kFrozen = false;

ParameterSpec dense() { return {.key = "a"}; }
ParameterSpec expert() { return {.key = "b", .expert = 0, .num_experts = 4}; }

TEST(BufferSections, ExpertsAreAmongTheRestWhereTheSameRanksHoldThem) {
  BufferSections sections({.tp = 2, .dp = 2, .etp = 2});
  EXPECT_EQ(sections.add(dense(), 100, kTrains).offset, 0);
  const auto [section, offset] = sections.add(expert(), 100, kTrains);
  EXPECT_EQ(section, 0U);
  EXPECT_EQ(offset, 128);
  const auto all = sections.finish();
  EXPECT_EQ(all[0].range.end, 256);
  EXPECT_EQ(all[3].range.end, 256) << "the others are empty";
  EXPECT_EQ(all[0].replicas, Group::kDpCp);
}

TEST(BufferSections, FollowEachOtherPaddedToTheirOwnReplicas) {
  BufferSections sections({.tp = 1, .dp = 6, .ep = 2});
  EXPECT_EQ(sections.add(expert(), 64, kTrains).section, 1U);
  EXPECT_EQ(sections.add(dense(), 1, kTrains).section, 0U);
  EXPECT_EQ(sections.add(expert(), 1, kFrozen).section, 3U);
  EXPECT_EQ(sections.add(expert(), 1, kTrains).offset, 64) << "behind the first expert, whatever came between them";
  const auto all = sections.finish();
  EXPECT_EQ(all[0].range.end, 6 * 128);
  EXPECT_EQ(all[1].range.begin, 6 * 128);
  EXPECT_EQ(all[1].range.end - all[1].range.begin, 3 * 128);
  EXPECT_EQ(all[1].replicas, Group::kExpertDp);
  EXPECT_EQ(all[1].num_replicas, 3);
  EXPECT_EQ(all[2].range.begin, all[2].range.end);
  EXPECT_EQ(all[3].range.end, 12 * 128);
}

TEST(BufferSections, ExpertsOfTensorParallelRanksThatAreWholeHaveMoreReplicas) {
  const RankGrid grid{.tp = 2, .dp = 2};  // etp 1
  BufferSections sections(grid);
  EXPECT_EQ(sections.add(expert(), 1, kTrains).section, 1U);
  EXPECT_EQ(sections.finish()[1].num_replicas, 4);
}

}  // namespace
}  // namespace ms::layout
