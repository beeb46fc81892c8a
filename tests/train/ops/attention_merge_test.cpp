#include "train/ops/attention_merge.h"

#include "core/error.h"
#include "tests/train/ops/each_sample.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/elementwise.h"

namespace ms::ops {
namespace {

constexpr int64_t kSeq = 30, kBatch = 2, kHeads = 4, kGroups = 2, kD = 8;

template <class T>
class MergeAttention : public ::testing::Test {};
TYPED_TEST_SUITE(MergeAttention, StorageTypes);

// Blocks of keys, in any order, give attention over all of them.
TYPED_TEST(MergeAttention, AddsBlocksOfKeys) {
  Ops ops(2);
  const auto q = ops.random<TypeParam>({kSeq, kBatch, kHeads, kD}, 1, 3.0F);
  const auto k = ops.random<TypeParam>({kSeq, kBatch, kGroups, kD}, 2, 3.0F), v = ops.random<TypeParam>(k.shape(), 3);
  const AttentionParams params{.scale = 0.7};
  auto want = ops.random<TypeParam>(q.shape(), 4), out = ops.random<TypeParam>(q.shape(), 4);
  auto want_lse = ops.zeros({kBatch, kHeads, kSeq}), lse = ops.zeros(want_lse.shape());
  const RowSpan back = {12, 18};
  const auto ranges = [](int64_t keys) {
    return in_each_sample({.first_row = 12, .rows = 18, .keys = keys, .distance = kSeq}, kBatch);
  };
  range_attention(ops.context, q, k, v, back, ranges(kSeq), params, want, want_lse);
  for (const std::vector<int64_t>& ends : {std::vector<int64_t>{10, 11, kSeq}, std::vector<int64_t>{25, kSeq}}) {
    for (const bool reversed : {false, true}) {
      auto sum = ops.zeros(q.shape()), sum_lse = ops.zeros(want_lse.shape());
      std::vector<std::pair<int64_t, int64_t>> blocks;
      for (size_t i = 0; i < ends.size(); ++i) blocks.emplace_back(i == 0 ? 0 : ends[i - 1], ends[i]);
      if (reversed) std::reverse(blocks.begin(), blocks.end());
      for (size_t i = 0; i < blocks.size(); ++i) {
        const auto [begin, end] = blocks[i];
        range_attention(ops.context, q, k.view().rows(begin, end), v.view().rows(begin, end), back, ranges(end - begin),
                        params, out, lse);
        if (i == 0) {
          cast_into(ops.context, out.view().rows(12, kSeq), sum.view().rows(12, kSeq));
          cast_into(ops.context, lse, sum_lse);
        } else {
          merge_attention(ops.context, out, lse, back, sum, sum_lse);
        }
      }
      const reference::Array seen = array(sum), of_all = array(want);
      // Of sums of weights that are exponentials of fp32 statistics.
      double most = 1;
      for (const double statistic : array(want_lse)) most = std::max(most, std::abs(statistic));
      const double eps = 4 * reference::roundoff<TypeParam>() + 4 * most * reference::roundoff<float>();
      for (size_t i = seen.size() / kSeq * 12; i < seen.size(); ++i) ASSERT_NEAR(seen[i], of_all[i], eps) << i;
      const reference::Array seen_lse = array(sum_lse), of_all_lse = array(want_lse);
      for (size_t i = 0; i < seen_lse.size(); ++i)
        if (static_cast<int64_t>(i) % kSeq >= 12) {
          ASSERT_NEAR(seen_lse[i], of_all_lse[i], 1e-5) << i;
        }
    }
  }
}

TEST(MergeAttentionOfFp32, LeavesOtherRows) {
  Ops ops;
  const auto out = ops.random<float>({kSeq, kBatch, kHeads, kD}, 1);
  const auto lse = ops.random<float>({kBatch, kHeads, kSeq}, 2);
  auto sum = ops.random<float>(out.shape(), 3), sum_lse = ops.random<float>(lse.shape(), 4);
  const reference::Array before = array(sum), before_lse = array(sum_lse);
  merge_attention(ops.context, out, lse, {10, 5}, sum, sum_lse);
  const reference::Array now = array(sum), now_lse = array(sum_lse);
  for (size_t i = 0; i < now.size(); ++i) {
    const size_t row = i / (now.size() / kSeq);
    EXPECT_EQ(now[i] != before[i], row >= 10 && row < 15) << row;
  }
  for (size_t i = 0; i < now_lse.size(); ++i) EXPECT_EQ(now_lse[i] != before_lse[i], i % kSeq >= 10 && i % kSeq < 15);
  EXPECT_THROW(merge_attention(ops.context, out, lse, {28, 5}, sum, sum_lse), core::Error);
}

}  // namespace
}  // namespace ms::ops
