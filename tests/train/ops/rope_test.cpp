#include "train/ops/rope.h"

#include "core/error.h"
#include "tests/reference/rope.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/latent_attention.h"
#include "train/ops/unfused.h"

namespace ms::ops {
namespace {

using reference::Array;
using reference::kFp32;
using reference::roundoff;

TEST(RopeTable, EqualsTheDefinition) {
  Ops ops;
  const RopeTable table(ops.arena, 2048, rope_inverse_frequencies(64, 10000.0));
  EXPECT_EQ(table.rows(), 2048);
  for (const int64_t position : {0, 1, 17, 2047}) {
    for (int64_t i = 0; i < 32; ++i) {
      const double angle = static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(i) / 32);
      // The frequency (power, division) and the angle are rounded to fp32, as transformers does.
      const double bound = 4 * kFp32 * angle + 2 * kFp32;
      EXPECT_NEAR(table.cos()[position * 32 + i], std::cos(angle), bound) << position << " " << i;
      EXPECT_NEAR(table.sin()[position * 32 + i], std::sin(angle), bound) << position << " " << i;
    }
  }
  EXPECT_THROW(rope_inverse_frequencies(5, 10000.0), core::Error);
  EXPECT_THROW(rope_inverse_frequencies(0, 10000.0), core::Error);
  EXPECT_THROW(RopeTable(ops.arena, 8, {}), core::Error);
}

template <class T>
class Rope : public ::testing::Test {};
TYPED_TEST_SUITE(Rope, StorageTypes);

TYPED_TEST(Rope, RotatesEachRowByItsPosition) {
  constexpr int64_t kSeq = 40, kBatch = 2, kHeads = 3, kD = 24, kDim = 20;
  Ops ops(2);
  const RopeTable table(ops.arena, 100, rope_inverse_frequencies(kDim, 10000.0));
  std::vector<int32_t> positions;
  for (int32_t token = 0; token < kSeq * kBatch; ++token) positions.push_back(token % 7 + 13);
  const auto start = ops.random<TypeParam>({kSeq, kBatch, kHeads, kD}, 1);
  for (const bool explicit_positions : {false, true}) {
    const auto x = ops.tensor(values<TypeParam>(start), start.shape());
    if (explicit_positions) {
      rope_inplace(ops.context, x, table, positions, false);
    } else {
      rope_inplace(ops.context, x, table, 60, false);
    }
    const Array before = array(start);
    Array want;
    for (int64_t row = 0; row < kSeq * kBatch * kHeads; ++row) {
      const int64_t token = row / kHeads;
      const int64_t position = explicit_positions ? positions[static_cast<size_t>(token)] : 60 + token / kBatch;
      Array angles;
      for (int64_t i = 0; i < kDim / 2; ++i) {
        angles.push_back(static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(i) / kDim));
      }
      const Array head = reference::rope({before.begin() + row * kD, before.begin() + (row + 1) * kD}, kDim, angles);
      want.insert(want.end(), head.begin(), head.end());
    }
    expect_near(x, want, (4 * 100 + 8) * kFp32, roundoff<TypeParam>(), "x");
    if (explicit_positions) {
      rope_inplace(ops.context, x, table, positions, true);
    } else {
      rope_inplace(ops.context, x, table, 60, true);
    }
    expect_near(x, before, 12 * kFp32 + 3 * (roundoff<TypeParam>() - kFp32), 0, "there and back");
  }
}

// The end of each head, as latent attention has it: as if it were a head of its own.
TYPED_TEST(Rope, RotatesHeadsFromAnElementOn) {
  constexpr int64_t kFirst = 5, kDim = 6;
  for (const RopePairs pairs : {RopePairs::kNeighbours, RopePairs::kHalves}) {
    Ops ops(2);
    const RopeTable table(ops.arena, 10, rope_inverse_frequencies(kDim, 100.0), pairs);
    const auto x = ops.random<TypeParam>({7, 2, 3, kFirst + kDim}, 1);
    const auto [before, end] = split_columns(ops.context, x, kFirst);
    rope_inplace(ops.context, end, table, 2, /*inverse=*/false);
    const core::Tensor want = join_columns(ops.context, before, end);
    const std::vector<int32_t> positions = {2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8};
    const core::Tensor plain = unfused::rope(ops.context, x, table, positions, /*inverse=*/false, kFirst);
    rope_inplace(ops.context, x, table, 2, /*inverse=*/false, kFirst);
    EXPECT_TRUE(same_bytes(x, want));
    expect_near(plain, array(want), 4 * kFp32, roundoff<TypeParam>(), "unfused");
    EXPECT_THROW(rope_inplace(ops.context, x, table, 0, /*inverse=*/false, kFirst + 1), core::Error);
  }
}

TEST(RopeTable, SupportsNeighbouringPairsAndAFactor) {
  Ops ops;
  const std::vector<float> frequency = {0.5F};
  const RopeTable table(ops.arena, 4, frequency, RopePairs::kNeighbours, 2.0);
  const auto x = ops.tensor<float>({1, 0, 0, 1}, {2, 1, 1, 2});
  rope_inplace(ops.context, x, table, 1, false);
  expect_near(x, {2 * std::cos(0.5), 2 * std::sin(0.5), -2 * std::sin(1.0), 2 * std::cos(1.0)}, 1e-6, 0, "x");
  rope_inplace(ops.context, x, table, 1, true);  // the gradient: rotated back, times the factor again
  expect_near(x, {4, 0, 0, 4}, 2e-6, 0, "gradient");
}

TEST(RopeTable, HasARowForEachOfItsPositions) {
  Ops ops;
  const std::vector<float> frequencies = rope_inverse_frequencies(16, 10000.0);
  const RopeTable whole(ops.arena, 100, frequencies), part(ops.arena, {{.first = 8, .count = 4}, {90, 3}}, frequencies);
  EXPECT_EQ(part.rows(), 7);
  const std::vector<int32_t> positions = {8, 9, 10, 11, 90, 91, 92};
  for (int64_t row = 0; row < 7; ++row) {
    const int64_t position = positions[static_cast<size_t>(row)];
    EXPECT_EQ(part.row_of(position), row);
    EXPECT_TRUE(std::equal(part.cos() + row * 8, part.cos() + row * 8 + 8, whole.cos() + position * 8)) << position;
    EXPECT_TRUE(std::equal(part.sin() + row * 8, part.sin() + row * 8 + 8, whole.sin() + position * 8)) << position;
  }
  const auto x = ops.random<float>({7, 1, 2, 16}, 1), same = ops.random<float>({7, 1, 2, 16}, 1);
  rope_inplace(ops.context, x, whole, positions, false);
  rope_inplace(ops.context, same, part, positions, false);
  EXPECT_TRUE(same_bytes(x, same));
  for (const int64_t missing : {0, 7, 12, 89, 93}) EXPECT_THROW(part.row_of(missing), core::Error) << missing;
}

TEST(RopeContract, RefusesPositionsBeyondTheTable) {
  Ops ops;
  const RopeTable table(ops.arena, 8, rope_inverse_frequencies(4, 10000.0));
  const auto x = ops.random<float>({4, 1, 1, 4}, 1);
  rope_inplace(ops.context, x, table, 4, false);
  EXPECT_THROW(rope_inplace(ops.context, x, table, 5, false), core::Error);
  const std::vector<int32_t> negative = {0, 1, -1, 2};
  EXPECT_THROW(rope_inplace(ops.context, x, table, negative, false), core::Error);
}

}  // namespace
}  // namespace ms::ops
