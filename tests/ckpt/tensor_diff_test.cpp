// Distances of tensors, what counts as rounding, and what cannot be compared. Whole runs:
// tests/train/tensor_dump_test.cpp.
#include "ckpt/tensor_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ckpt/floats.h"
#include "tests/support/thrown.h"

namespace ms::ckpt {
namespace {

using test::Floats;
using testing::HasSubstr;

// Norm 5; moved by `by` in one element.
Floats moved(float by) { return Floats({2, 2}, 1, {3 + by, 0, 0, 4}); }

TEST(TensorDiff, DistanceIsRelativeToTheFirst) {
  Floats a = moved(0), b = moved(0.5F);
  const std::vector<TensorDistance> rows = diff_tensors(a, b);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].tensor, "x (param)");
  EXPECT_NEAR(rows[0].relative_l2, 0.1, 1e-7);
  EXPECT_EQ(rows[0].max_abs, 0.5);
  EXPECT_TRUE(rows[0].is_beyond());
  EXPECT_FALSE(diff_tensors(a, b, {.tolerance = 0.11})[0].is_beyond());
  EXPECT_TRUE(diff_tensors(a, b, {.tolerance = 0.09})[0].is_beyond());
  EXPECT_FALSE(diff_tensors(a, a)[0].is_beyond());
}

TEST(TensorDiff, TenTimesTheNoiseIsRounding) {
  Floats a = moved(0), b = moved(0.5F), little = moved(0.04F), enough = moved(0.06F), none = moved(0);
  EXPECT_TRUE(diff_tensors(a, b, {.noise = &little})[0].is_beyond());
  EXPECT_FALSE(diff_tensors(a, b, {.noise = &enough})[0].is_beyond());
  EXPECT_NEAR(diff_tensors(a, b, {.noise = &none})[0].allowed, 10 * 0x1p-23, 1e-12) << "never less than the dtype's";
}

TEST(TensorDiff, WhatOnlyOneHasIsAbsentAndAnotherShapeIsBeyond) {
  Floats a = moved(0), wide({4}, 1, {1, 2, 3, 4});
  TensorDiffOptions renamed;
  renamed.renames.push_back({std::regex("x"), "y"});
  const std::vector<TensorDistance> rows = diff_tensors(a, a, renamed);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].fault, "only in the first");
  EXPECT_EQ(rows[1].tensor, "y (param)");
  EXPECT_TRUE(rows[0].is_absent && rows[1].is_absent && !rows[0].is_beyond());
  const TensorDistance shaped = diff_tensors(a, wide)[0];
  EXPECT_THAT(shaped.fault, HasSubstr("shape"));
  EXPECT_TRUE(shaped.is_beyond() && !shaped.is_absent);
}

TEST(TensorDiff, NoiseOfAnotherShapeIsRefused) {
  Floats a = moved(0), wide({4}, 1, {1, 2, 3, 4});
  const ms::test::Thrown thrown = ms::test::thrown_by([&] { diff_tensors(a, a, {.noise = &wide}); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("the perturbed run's x"));
}

}  // namespace
}  // namespace ms::ckpt
