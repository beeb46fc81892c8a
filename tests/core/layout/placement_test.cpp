#include "core/layout/placement.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace ms::layout {
namespace {

TEST(Placement, RoundRobinVisitsTheStagesOnceForEachChunk) {
  const Placement placement = Placement::even(2, 2, 8);
  const Place expected[] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}};
  for (int k = 0; k < 4; ++k) {
    EXPECT_EQ(placement.place(k), expected[k]);
    EXPECT_EQ(placement.position(expected[k]), k);
    EXPECT_EQ(placement.layers(expected[k]).first, 2 * k);
    EXPECT_EQ(placement.layers(expected[k]).count, 2);
  }
  EXPECT_TRUE(placement.is_first({0, 0}));
  EXPECT_TRUE(placement.is_last({1, 1}));
}

TEST(Placement, VReturnsThroughTheStages) {
  const Placement placement = Placement::even(3, 2, 6, Placement::Order::kV);
  const Place expected[] = {{0, 0}, {1, 0}, {2, 0}, {2, 1}, {1, 1}, {0, 1}};
  for (int k = 0; k < 6; ++k) {
    EXPECT_EQ(placement.place(k), expected[k]);
    EXPECT_EQ(placement.position(expected[k]), k);
  }
  EXPECT_TRUE(placement.is_last({0, 1}));
}

TEST(Placement, ListOfLayersGivesEachPositionItsOwnNumber) {
  const Placement placement(2, 2, Placement::Order::kRoundRobin, {3, 1, 0, 4});
  EXPECT_EQ(placement.layers({0, 0}).first, 0);
  EXPECT_EQ(placement.layers({1, 0}).first, 3);
  EXPECT_EQ(placement.layers({0, 1}).count, 0);
  EXPECT_EQ(placement.layers({1, 1}).first, 4);
  EXPECT_EQ(placement.layers({1, 1}).count, 4);
}

TEST(Placement, NoOpLayersTakeSlotsAndNoNumbers) {
  const Placement placement = Placement::even(2, 2, 8, Placement::Order::kV, {0, 5, 7});
  using Slots = std::vector<std::optional<int64_t>>;
  EXPECT_EQ(placement.slots({0, 0}), (Slots{std::nullopt, 0}));
  EXPECT_EQ(placement.slots({1, 0}), (Slots{1, 2}));
  EXPECT_EQ(placement.slots({1, 1}), (Slots{3, std::nullopt}));
  EXPECT_EQ(placement.slots({0, 1}), (Slots{4, std::nullopt}));
  EXPECT_EQ(placement.num_slots(), 8);
  EXPECT_EQ(placement.layers({1, 1}).first, 3);
  EXPECT_EQ(placement.layers({1, 1}).count, 1);
  for (int64_t layer = 0; layer < 5; ++layer) {
    const Placement::Slot at = placement.slot_of(layer);
    EXPECT_EQ(placement.slots(at.place)[static_cast<size_t>(at.index)], layer);
  }
}

}  // namespace
}  // namespace ms::layout
