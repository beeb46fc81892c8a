#include "train/ops/latent_attention.h"

#include "core/error.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::Array;

template <class T>
class LatentAttention : public ::testing::Test {};
TYPED_TEST_SUITE(LatentAttention, StorageTypes);

TYPED_TEST(LatentAttention, ColumnsAreSplitAndJoined) {
  for (const int64_t first : {1, 5, 8}) {
    Ops ops(2);
    const auto x = ops.random<TypeParam>({3, 2, 9}, 1);
    const auto [left, right] = split_columns(ops.context, x, first);
    EXPECT_EQ(left.shape(), (core::Dims{3, 2, first}));
    EXPECT_EQ(right.shape(), (core::Dims{3, 2, 9 - first}));
    const Array all = array(x), a = array(left), b = array(right);
    for (size_t row = 0; row < 6; ++row) {
      for (size_t e = 0; e < 9; ++e) {
        const auto begin = static_cast<size_t>(first);
        ASSERT_EQ(all[row * 9 + e], e < begin ? a[row * begin + e] : b[row * (9 - begin) + e - begin]);
      }
    }
    EXPECT_TRUE(same_bytes(join_columns(ops.context, left, right), x));
  }
}

TYPED_TEST(LatentAttention, EachHeadHasItsOwnKeyThenTheSharedOneAndItsValue) {
  constexpr size_t kSeq = 3, kBatch = 2, kHeads = 3, kOwn = 4, kShared = 2, kValue = 5;
  Ops ops(2);
  const auto kv = ops.random<TypeParam>({kSeq, kBatch, kHeads * (kOwn + kValue)}, 1);
  const auto shared = ops.random<TypeParam>({kSeq, kBatch, kShared}, 2);
  const auto [k, v] = split_latent(ops.context, kv, shared, kHeads, kValue);
  EXPECT_EQ(k.shape(), (core::Dims{kSeq, kBatch, kHeads, kOwn + kShared}));
  EXPECT_EQ(v.shape(), (core::Dims{kSeq, kBatch, kHeads, kValue}));
  const Array all = array(kv), ends = array(shared), keys = array(k), values = array(v);
  for (size_t head = 0; head < kSeq * kBatch * kHeads; ++head) {
    for (size_t e = 0; e < kOwn; ++e) ASSERT_EQ(keys[head * (kOwn + kShared) + e], all[head * (kOwn + kValue) + e]);
    for (size_t e = 0; e < kShared; ++e)
      ASSERT_EQ(keys[head * (kOwn + kShared) + kOwn + e], ends[head / kHeads * kShared + e]);
    for (size_t e = 0; e < kValue; ++e) ASSERT_EQ(values[head * kValue + e], all[head * (kOwn + kValue) + kOwn + e]);
  }
  // Back: heads are put together again; the gradient of what they share is the sum over them.
  const auto dk = ops.random<TypeParam>(k.shape(), 3);
  const auto [dkv, dshared] = merge_latent(ops.context, dk, v, kShared);
  EXPECT_EQ(dkv.shape(), kv.shape());
  const Array of_keys = array(dk), of_both = array(dkv);
  Array sums(ends.size());
  for (size_t head = 0; head < kSeq * kBatch * kHeads; ++head) {
    for (size_t e = 0; e < kOwn; ++e)
      ASSERT_EQ(of_both[head * (kOwn + kValue) + e], of_keys[head * (kOwn + kShared) + e]);
    for (size_t e = 0; e < kValue; ++e)
      ASSERT_EQ(of_both[head * (kOwn + kValue) + kOwn + e], values[head * kValue + e]);
    for (size_t e = 0; e < kShared; ++e)
      sums[head / kHeads * kShared + e] += of_keys[head * (kOwn + kShared) + kOwn + e];
  }
  expect_near(dshared, sums, kHeads * reference::kFp32, reference::roundoff<TypeParam>(), "dshared");
}

TEST(LatentAttentionContract, RefusesWrongShapes) {
  Ops ops;
  const auto x = ops.random<float>({2, 1, 12}, 1), shared = ops.random<float>({2, 1, 2}, 1);
  EXPECT_THROW(split_columns(ops.context, x, 12), core::Error);
  EXPECT_THROW(split_latent(ops.context, x, shared, 5, 1), core::Error);
  EXPECT_THROW(split_latent(ops.context, x, ops.random<float>({1, 1, 2}, 1), 2, 3), core::Error);
}

}  // namespace
}  // namespace ms::ops
