// Distances of tensors, what counts as rounding, and what cannot be compared. Whole runs:
// tests/train/tensor_dump_test.cpp.
#include "ckpt/tensor_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ckpt/recording.h"
#include "tests/ckpt/floats.h"
#include "tests/support/thrown.h"

namespace ms::ckpt {
namespace {

using test::Floats;
using testing::HasSubstr;

Floats recorded(core::Dims shape, std::vector<float> values, double perturbation = 0) {
  Floats source(std::move(shape), 1, std::move(values));
  source.change_info().common[kRecordingMark] = recording_mark({.perturbation = perturbation, .dtype = {}});
  return source;
}

// Norm 5; moved by `by` in one element.
Floats moved(float by, double perturbation = 0) { return recorded({2, 2}, {3 + by, 0, 0, 4}, perturbation); }

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

TEST(TensorDiff, ToleranceZeroAllowsEqualValuesOnly) {
  Floats a = moved(0), b = moved(1e-6F);
  EXPECT_FALSE(diff_tensors(a, a, {.tolerance = 0})[0].is_beyond());
  EXPECT_TRUE(diff_tensors(a, a, {.tolerance = 0})[0].is_identical);
  EXPECT_TRUE(diff_tensors(a, b, {.tolerance = 0})[0].is_beyond());
}

TEST(TensorDiff, ThreeTimesTheNoiseIsRounding) {
  Floats a = moved(0), b = moved(0.5F), little = moved(0.15F, 1), enough = moved(0.18F, 1), none = moved(0, 1);
  EXPECT_TRUE(diff_tensors(a, b, {.noise = &little})[0].is_beyond());
  const TensorDistance within = diff_tensors(a, b, {.noise = &enough})[0];
  EXPECT_FALSE(within.is_beyond());
  EXPECT_NEAR(within.share(), 0.5 / 0.54, 1e-6);
  EXPECT_NEAR(diff_tensors(a, b, {.noise = &none})[0].allowed, 12 * 0x1p-23, 1e-12) << "never less than the dtype's";
}

TEST(TensorDiff, NoiseWithoutPerturbationIsRefused) {
  Floats a = moved(0), plain = moved(0.5F), other({2, 2}, 1, {3, 0, 0, 4});
  other.change_info().has_model = false;
  for (Floats* noise : {&plain, &other}) {
    const ms::test::Thrown thrown = ms::test::thrown_by([&] { diff_tensors(a, a, {.noise = noise}); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
    EXPECT_THAT(thrown.text, HasSubstr("--save-tensors-perturbation"));
  }
}

TEST(TensorDiff, CheckpointsAreRefused) {
  Floats recording = moved(0), checkpoint({2, 2}, 1, {3, 0, 0, 4});
  const auto text_of = [](Floats& a, Floats& b) { return ms::test::thrown_by([&] { diff_tensors(a, b); }).text; };
  EXPECT_THAT(text_of(checkpoint, checkpoint), HasSubstr("both are checkpoints"));
  EXPECT_THAT(text_of(recording, checkpoint), HasSubstr("the first holds what modules computed"));
  checkpoint.change_info().has_model = false;  // tensors of another program
  EXPECT_FALSE(diff_tensors(recording, checkpoint)[0].is_beyond());
}

// An element that is no number has no distance.
TEST(TensorDiff, WhatIsNotFiniteOnOneSideIsBeyond) {
  Floats a = moved(0), b = recorded({2, 2}, {3, NAN, NAN, 4});
  const TensorDistance second = diff_tensors(a, b)[0], first = diff_tensors(b, a)[0];
  EXPECT_TRUE(second.is_beyond() && first.is_beyond());
  EXPECT_EQ(second.fault, "2 NaN only in the second");
  EXPECT_EQ(first.fault, "2 NaN only in the first");
  EXPECT_EQ(second.incomparable, "");
}

TEST(TensorDiff, WhatIsNotFiniteInBothIsNotComparable) {
  Floats a = recorded({2, 2}, {3, NAN, INFINITY, 4}), b = recorded({2, 2}, {3.5F, NAN, NAN, 4});
  const TensorDistance same = diff_tensors(a, a)[0];
  EXPECT_FALSE(same.is_beyond());
  EXPECT_EQ(same.incomparable, "1 NaN and 1 infinite");
  EXPECT_TRUE(diff_tensors(a, b)[0].is_beyond()) << "the others are compared";
}

TEST(TensorDiff, NoiseThatIsNotFiniteIsRefused) {
  Floats a = moved(0), noise = recorded({2, 2}, {3, NAN, 0, 4}, 1);
  const ms::test::Thrown thrown = ms::test::thrown_by([&] { diff_tensors(a, a, {.noise = &noise}); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("1 NaN where the first is finite"));
}

TEST(TensorDiff, RenamesThatChangeNothingAreTold) {
  const Floats a = moved(0);
  EXPECT_EQ(renames_without_effect(a, {{std::regex("x"), "y"}, {std::regex("x"), "z"}, {std::regex("y"), "x"}}),
            std::vector<size_t>{1});
}

TEST(TensorDiff, ConfigurationsAreComparedButForLayoutAndFolders) {
  Floats a = moved(0), b = moved(0);
  EXPECT_TRUE(config_differences(a, b).empty());
  a.change_info().common["config"] = {{"rng", {{"seed", 1}}}, {"parallel", {{"tp", 1}}}, {"model", {{"same", 1}}}};
  b.change_info().common["config"] = {{"rng", {{"seed", 2}}}, {"parallel", {{"tp", 2}}}, {"model", {{"same", 1}}}};
  EXPECT_EQ(config_differences(a, b), std::vector<std::string>{"rng.seed 1 and 2"});
}

TEST(TensorDiff, WhatOnlyOneHasIsAbsentAndAnotherShapeIsBeyond) {
  Floats a = moved(0), wide = recorded({4}, {1, 2, 3, 4}, 1);
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
  Floats a = moved(0), wide = recorded({4}, {1, 2, 3, 4}, 1);
  const ms::test::Thrown thrown = ms::test::thrown_by([&] { diff_tensors(a, a, {.noise = &wide}); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("the perturbed run's x"));
}

}  // namespace
}  // namespace ms::ckpt
