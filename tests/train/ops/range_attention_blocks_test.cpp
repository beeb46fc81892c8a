// Range attention of the same rows in each sample, over all keys there are.
#include "core/error.h"
#include "tests/reference/attention.h"
#include "tests/train/ops/each_sample.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/range_attention.h"

namespace ms::ops {
namespace {

using reference::Array;

constexpr int64_t kRows = 70, kBatch = 2, kHeads = 4, kGroups = 2, kD = 8, kValueD = 6;

// Head `head` of batch element `batch` of x [s, b, heads, d], rows [begin, end).
Array rows_of_head(const core::TensorView& x, int64_t batch, int64_t head, int64_t begin, int64_t end) {
  const Array all = array(x);
  Array result;
  for (int64_t s = begin; s < end; ++s) {
    const auto at = all.begin() + ((s * x.dim(1) + batch) * x.dim(2) + head) * x.dim(3);
    result.insert(result.end(), at, at + x.dim(3));
  }
  return result;
}

void expect_rows(const core::TensorView& x, int64_t batch, int64_t head, int64_t begin, const Array& want,
                 double tolerance, const char* what) {
  const auto rows = static_cast<int64_t>(want.size()) / x.dim(3);
  const Array got = rows_of_head(x, batch, head, begin, begin + rows);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << what << " at " << i;
}

// Rows [first_row, first_row + rows) of the queries, `distance` behind the first key.
struct Rows {
  int64_t first_row = 0, rows = 0, distance = 0;
  RowSpan span() const { return {first_row, rows}; }
  std::vector<AttentionRange> ranges(int64_t keys) const {
    return in_each_sample(
        {.first_row = first_row, .rows = rows, .keys = keys, .distance = distance, .position = distance}, kBatch);
  }
};

struct Case {
  int64_t keys;
  Rows block;
  int64_t window;
  double softcap;
};
const Case kCases[] = {{70, {0, 70, 0}, 0, 0},    {70, {0, 70, 0}, 9, 2},   {90, {0, 70, 20}, 0, 0},
                       {61, {20, 31, 30}, 0, 0},  {61, {20, 31, 30}, 7, 0}, {40, {35, 35, 40}, 0, 0},
                       {64, {35, 35, 100}, 0, 1}, {1, {69, 1, 0}, 0, 0},    {33, {1, 40, 5}, 0, 0}};

TEST(RangeAttentionOfBlocks, IsAttentionOfItsRows) {
  Ops ops(2);
  for (const Case& of : kCases) {
    SCOPED_TRACE(core::cat("keys ", of.keys, ", rows ", of.block.first_row, " + ", of.block.rows, ", distance ",
                           of.block.distance, ", window ", of.window));
    const auto q = ops.random<float>({kRows, kBatch, kHeads, kD}, 1);
    const auto k = ops.random<float>({of.keys, kBatch, kGroups, kD}, 2);
    const auto v = ops.random<float>({of.keys, kBatch, kGroups, kValueD}, 3);
    const auto dout = ops.random<float>({kRows, kBatch, kHeads, kValueD}, 4);
    const AttentionParams params{.scale = 0.5, .softcap = of.softcap, .window = of.window};
    auto out = ops.random<float>({kRows, kBatch, kHeads, kValueD}, 5), dq = ops.random<float>(q.shape(), 6);
    auto lse = ops.random<float>({kBatch, kHeads, kRows}, 7), dk = ops.random<float>(k.shape(), 8);
    auto dv = ops.random<float>(v.shape(), 9);
    const Array others = array(out), others_dq = array(dq);
    const std::vector<AttentionRange> ranges = of.block.ranges(of.keys);
    range_attention(ops.context, q, k, v, of.block.span(), ranges, params, out, lse);
    const int64_t flops = ops.context.flops;
    range_attention_backward(ops.context, dout, q, k, v, out, lse, of.block.span(), ranges, params, {dq, dk, dv});
    EXPECT_EQ(ops.context.flops, 3 * flops);
    ops.context.flops = 0;

    const int64_t begin = of.block.first_row, end = begin + of.block.rows;
    const auto sees = [&](size_t i, size_t j) {
      const int64_t query = static_cast<int64_t>(i) + of.block.distance, key = static_cast<int64_t>(j);
      return key <= query && (of.window == 0 || key > query - of.window);
    };
    const reference::AttentionParams of_reference{.scale = 0.5, .softcap = of.softcap, .sees = sees};
    for (int64_t batch = 0; batch < kBatch; ++batch) {
      for (int64_t group = 0; group < kGroups; ++group) {
        const Array keys = rows_of_head(k, batch, group, 0, of.keys),
                    values = rows_of_head(v, batch, group, 0, of.keys);
        Array dkeys(keys.size()), dvalues(values.size());
        for (int64_t head = group * 2; head < group * 2 + 2; ++head) {
          const Array queries = rows_of_head(q, batch, head, begin, end);
          const Array dresult = rows_of_head(dout, batch, head, begin, end);
          const auto want = reference::attention(queries, keys, values, kD, of_reference);
          expect_rows(out, batch, head, begin, want.out, 1e-6, "out");
          const auto grads = reference::attention_backward(dresult, queries, keys, values, kD, of_reference);
          expect_rows(dq, batch, head, begin, grads.dq, 4e-6, "dq");
          for (size_t i = 0; i < dkeys.size(); ++i) dkeys[i] += grads.dk[i];
          for (size_t i = 0; i < dvalues.size(); ++i) dvalues[i] += grads.dv[i];
        }
        expect_rows(dk, batch, group, 0, dkeys, 1e-5, "dk");
        expect_rows(dv, batch, group, 0, dvalues, 1e-5, "dv");
      }
    }
    // Other rows stay as they were.
    for (const auto& [now, before] : {std::pair{array(out), others}, {array(dq), others_dq}}) {
      const size_t width = now.size() / kRows;
      for (size_t i = 0; i < now.size(); ++i) {
        const auto row = static_cast<int64_t>(i / width);
        if (row < begin || row >= end) {
          ASSERT_EQ(now[i], before[i]) << "row " << row;
        }
      }
    }
  }
}

// As much as causal_attention counts, whatever the blocks.
TEST(RangeAttentionOfBlocks, BlocksOfASequenceCountItsFlops) {
  Ops ops;
  for (const int64_t window : {0, 11}) {
    const auto q = ops.random<float>({kRows, kBatch, kHeads, kD}, 1);
    const auto k = ops.random<float>({kRows, kBatch, kGroups, kD}, 2), v = ops.random<float>(k.shape(), 3);
    const AttentionParams params{.scale = 1, .window = window};
    ops.context.flops = 0;
    const AttentionResult whole = causal_attention(ops.context, q, k, v, params);
    const int64_t flops = ops.context.flops;
    ops.context.flops = 0;
    auto out = ops.zeros(whole.out.shape()), lse = ops.zeros(whole.lse.shape());
    for (int64_t row = 0; row < kRows; row += 35) {
      const Rows block{row, 35, row};
      range_attention(ops.context, q, k.view().rows(0, row + 35), v.view().rows(0, row + 35), block.span(),
                      block.ranges(row + 35), params, out, lse);
    }
    EXPECT_EQ(ops.context.flops, flops);
    expect_near(out, array(whole.out), 1e-6, 0, "out");
  }
}

// The same probabilities are dropped, wherever the queries are computed.
TEST(RangeAttentionOfBlocks, DropsWhatTheWholeSequenceDrops) {
  Ops ops;
  const std::vector<int64_t> samples = {5, 9};
  const auto q = ops.random<float>({kRows, kBatch, kHeads, kD}, 1);
  const auto k = ops.random<float>({kRows, kBatch, kGroups, kD}, 2), v = ops.random<float>(k.shape(), 3);
  const AttentionParams params{.scale = 1, .dropout = {0.3F, 77}, .first_head = 4, .samples = samples};
  const AttentionResult whole = causal_attention(ops.context, q, k, v, params);
  auto out = ops.zeros(whole.out.shape()), lse = ops.zeros(whole.lse.shape());
  for (int64_t row = 0; row < kRows; row += 14) {
    const Rows block{row, 14, row};
    range_attention(ops.context, q, k.view().rows(0, row + 14), v.view().rows(0, row + 14), block.span(),
                    block.ranges(row + 14), params, out, lse);
  }
  expect_near(out, array(whole.out), 1e-6, 0, "out");
}

TEST(RangeAttentionOfBlocks, RefusesWhatDoesNotFit) {
  Ops ops;
  const auto q = ops.random<float>({kRows, kBatch, kHeads, kD}, 1);
  const auto k = ops.random<float>({kRows, kBatch, kGroups, kD}, 2);
  auto out = ops.zeros(q.shape()), lse = ops.zeros({kBatch, kHeads, kRows});
  for (const Rows& block : {Rows{60, 20, 0}, Rows{0, 20, -1}})
    EXPECT_THROW(range_attention(ops.context, q, k, k, block.span(), block.ranges(kRows), {}, out, lse), core::Error);
}

}  // namespace
}  // namespace ms::ops
