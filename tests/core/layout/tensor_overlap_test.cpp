// In how many parts products of tensor parallelism are cut.
#include "core/layout/tensor_overlap.h"

#include <gtest/gtest.h>

namespace ms::layout {
namespace {

TEST(TensorOverlap, ProductIsWholeUnlessPartsAreAskedFor) {
  EXPECT_EQ(TensorOverlap{}.product_parts(4096, 4), 1);
  EXPECT_EQ((TensorOverlap{.backward = true}).product_parts(4096, 4), 1);
}

TEST(TensorOverlap, AskedPartsAreReducedToADivisorOfThePositions) {
  constexpr TensorOverlap kFour{.backward = true, .parts = 4};
  EXPECT_EQ(kFour.product_parts(64, 1), 4);
  EXPECT_EQ(kFour.product_parts(6, 1), 3);
  EXPECT_EQ(kFour.product_parts(7, 1), 1);
}

TEST(TensorOverlap, AutomaticPartsHaveAtLeast256Rows) {
  constexpr TensorOverlap kAutomatic{.backward = true, .parts = TensorOverlap::kAutomatic};
  EXPECT_EQ(kAutomatic.product_parts(256, 1), 1);
  EXPECT_EQ(kAutomatic.product_parts(512, 1), 2);
  EXPECT_EQ(kAutomatic.product_parts(512, 4), 8) << "rows of all sequences count";
  EXPECT_EQ(kAutomatic.product_parts(1 << 20, 1), 8) << "and no more than 8";
}

}  // namespace
}  // namespace ms::layout
