#include "train/ops/dropout.h"

#include "core/error.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

template <class T>
class DropoutOp : public ::testing::Test {};
TYPED_TEST_SUITE(DropoutOp, StorageTypes);

// A sequence-parallel rank drops the same elements of its rows as a single rank, and a sample keeps its mask at any
// position of a batch.
TYPED_TEST(DropoutOp, MasksFollowTheSampleAndThePosition) {
  Ops ops(2);
  constexpr int64_t kSeq = 6, kBatch = 3, kWidth = 40;
  const std::vector<int64_t> samples = {10, 11, 12};
  const auto start = ops.random<TypeParam>({kSeq, kBatch, kWidth}, 1);
  const auto whole = ops.tensor(values<TypeParam>(start), start.shape());
  dropout_inplace(ops.context, whole, {0.4F, 5}, 0, samples);
  EXPECT_FALSE(same_bytes(whole, start));
  const auto half = ops.tensor(values<TypeParam>(start.view().rows(2, 6)), {4, kBatch, kWidth});
  dropout_inplace(ops.context, half, {0.4F, 5}, 2, samples);
  EXPECT_TRUE(same_bytes(half, whole.view().rows(2, 6)));

  Ops one(1);
  const auto alone = one.tensor(values<TypeParam>(start), start.shape());
  dropout_inplace(one.context, alone, {0.4F, 5}, 0, samples);
  EXPECT_TRUE(same_bytes(alone, whole)) << "threads";
}

TEST(DropoutContract, RequiresASampleForEveryRow) {
  Ops ops;
  const std::vector<int64_t> samples = {1};
  EXPECT_THROW(dropout_inplace(ops.context, ops.random<float>({2, 2, 4}, 1), {0.5F, 1}, 0, samples), core::Error);
  EXPECT_THROW(dropout_inplace(ops.context, ops.random<float>({2, 4}, 1), {0.5F, 1}, 0, samples), core::Error);
}

}  // namespace
}  // namespace ms::ops
