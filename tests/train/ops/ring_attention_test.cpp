#include "train/ops/ring_attention.h"

#include <algorithm>

#include "core/error.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::kFp32;
using reference::roundoff;

PartialAttention parts(const FusionAttentionResult& x) { return {x.out, x.softmax_max, x.softmax_sum}; }

template <class T>
class RingAttention : public ::testing::Test {};
TYPED_TEST_SUITE(RingAttention, StorageTypes);

// Attends to blocks of keys separately and merges them in any order: the result is attention to all keys. Blocks of
// later keys are entirely hidden from early queries: rows with max -inf.
TYPED_TEST(RingAttention, AnyOrderOfBlocksEqualsAttentionToAllKeys) {
  constexpr int64_t kSeq = 24, kBlock = 6, kBatch = 2, kHeads = 3, kD = 20;
  for (const bool packed : {false, true}) {
    Ops ops(2);
    // One sequence per batch of one when packed: [t, n, d] and [s, b, n * d] with b = 1 have the same layout.
    const int64_t batch = packed ? 1 : kBatch;
    const auto q =
        ops.random<TypeParam>(packed ? core::Dims{kSeq, kHeads, kD} : core::Dims{kSeq, batch, kHeads * kD}, 1, 2);
    const auto k = ops.random<TypeParam>(q.shape(), 2, 2), v = ops.random<TypeParam>(q.shape(), 3);
    const AttentionLayout layout = packed ? AttentionLayout::kTnd : AttentionLayout::kSbh;
    const std::vector<int64_t> q_ends = {kSeq}, with_zero = {0, kSeq};
    FusionAttentionParams params;
    params.head_num = kHeads, params.layout = layout, params.scale = 0.3, params.pre_tokens = 2147483647,
    params.next_tokens = 0;
    if (packed) params.actual_seq_qlen = params.actual_seq_kvlen = q_ends;
    const auto whole = fusion_attention(ops.context, q, k, v, params);

    std::vector<FusionAttentionResult> blocks;
    for (int64_t first = 0; first < kSeq; first += kBlock) {
      params.next_tokens = -first;  // key j of the block is key first + j of all
      params.pre_tokens = 2147483647;
      const std::vector<int64_t> kv_ends = {kBlock};
      if (packed) params.actual_seq_kvlen = kv_ends;
      blocks.push_back(fusion_attention(ops.context, q, k.view().rows(first, first + kBlock),
                                        v.view().rows(first, first + kBlock), params));
    }
    std::vector<size_t> order = {0, 1, 2, 3};
    do {
      FusionAttentionResult sum =
          ring_attention_update(ops.context, parts(blocks[order[0]]), parts(blocks[order[1]]), layout,
                                packed ? std::span(q_ends) : std::span<const int64_t>());
      for (size_t i = 2; i < 4; ++i) {
        sum = ring_attention_update(ops.context, parts(sum), parts(blocks[order[i]]), layout,
                                    packed ? std::span(with_zero) : std::span<const int64_t>());
      }
      // Every stored partial result is rounded.
      expect_near(sum.out, array(whole.out), 1e-6 + 4 * roundoff<TypeParam>(), roundoff<TypeParam>(), "out");
      EXPECT_TRUE(same_bytes(sum.softmax_max, whole.softmax_max));
      expect_near(sum.softmax_sum, array(whole.softmax_sum), 0, 1e-6, "sum");
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(RingAttentionRows, WithoutVisibleKeysAddNothing) {
  Ops ops;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const auto a = ops.tensor<float>({nan, 1, nan, 2}, {4, 1, 1}), b = ops.tensor<float>({5, nan, nan, 6}, {4, 1, 1});
  const auto a_max = ops.tensor<float>({-inf, 0, -inf, 1}, {4, 1}),
             b_max = ops.tensor<float>({3, -inf, -inf, 1}, {4, 1});
  const auto a_sum = ops.tensor<float>({0, 2, 0, 1}, {4, 1}), b_sum = ops.tensor<float>({4, 0, 0, 3}, {4, 1});
  const std::vector<int64_t> ends = {1, 4};
  const auto sum =
      ring_attention_update(ops.context, {a, a_max, a_sum}, {b, b_max, b_sum}, AttentionLayout::kTnd, ends);
  EXPECT_EQ(values<float>(sum.out), (std::vector<float>{5, 1, 0, 5}));
  EXPECT_EQ(values<float>(sum.softmax_max), (std::vector<float>{3, 0, -inf, 1}));
  EXPECT_EQ(values<float>(sum.softmax_sum), (std::vector<float>{4, 2, 0, 4}));
}

TEST(RingAttentionContract, RefusesOtherLayoutsAndWrongEnds) {
  Ops ops;
  const auto out = ops.random<float>({4, 1, 1}, 1), of_row = ops.random<float>({4, 1}, 1),
             sbh = ops.random<float>({1, 1, 4}, 1);
  const PartialAttention x{out, of_row, of_row}, y{out, sbh, sbh};
  const auto tnd = [&](std::vector<int64_t> ends) {
    ring_attention_update(ops.context, x, x, AttentionLayout::kTnd, ends);
  };
  tnd({0, 2, 4});
  EXPECT_THROW(tnd({}), core::Error);
  EXPECT_THROW(tnd({3}), core::Error);
  EXPECT_THROW(tnd({3, 2, 4}), core::Error);
  EXPECT_THROW(ring_attention_update(ops.context, y, y, AttentionLayout::kBsnd), core::Error);
  const std::vector<int64_t> ends = {4};
  EXPECT_THROW(ring_attention_update(ops.context, y, y, AttentionLayout::kSbh, ends), core::Error);
  EXPECT_THROW(ring_attention_update(ops.context, x, x), core::Error);
}

}  // namespace
}  // namespace ms::ops
