#include "train/ops/range_attention.h"

#include <cmath>

#include "core/error.h"
#include "tests/reference/attention.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/attention_merge.h"

namespace ms::ops {
namespace {

using reference::Array;

constexpr int64_t kRows = 40, kKeys = 50, kBatch = 2, kHeads = 4, kGroups = 2, kD = 8, kValueD = 6;
constexpr RowSpan kSpan = {3, 35};
// The last rows, and the last keys of sample 1, are of no range.
const std::vector<AttentionRange> kRanges = {
    {.sample = 0, .first_row = 3, .rows = 10, .keys = 10, .distance = 0},
    {.sample = 0, .first_row = 13, .rows = 1, .first_key = 10, .keys = 17, .distance = 17},
    {.sample = 0, .first_row = 20, .rows = 18, .first_key = 30, .keys = 20, .distance = 6},
    {.sample = 1, .first_row = 5, .rows = 9, .keys = 33, .distance = 30}};

Array rows_of_head(const core::TensorView& x, int64_t batch, int64_t head, int64_t begin, int64_t count) {
  const Array all = array(x);
  Array result;
  for (int64_t s = begin; s < begin + count; ++s) {
    const auto at = all.begin() + ((s * x.dim(1) + batch) * x.dim(2) + head) * x.dim(3);
    result.insert(result.end(), at, at + x.dim(3));
  }
  return result;
}

void add_rows(Array& to, const core::Dims& shape, int64_t batch, int64_t head, int64_t begin, const Array& rows) {
  const int64_t d = shape[3];
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t row = begin + static_cast<int64_t>(i) / d;
    to[static_cast<size_t>(((row * shape[1] + batch) * shape[2] + head) * d + static_cast<int64_t>(i) % d)] += rows[i];
  }
}

TEST(RangeAttention, EachRangeIsAttentionOfItsRowsAndKeys) {
  Ops ops(2);
  for (const int64_t window : {0, 7}) {
    SCOPED_TRACE(core::cat("window ", window));
    const auto q = ops.random<float>({kRows, kBatch, kHeads, kD}, 1),
               k = ops.random<float>({kKeys, kBatch, kGroups, kD}, 2);
    const auto v = ops.random<float>({kKeys, kBatch, kGroups, kValueD}, 3);
    const auto dout = ops.random<float>({kRows, kBatch, kHeads, kValueD}, 4);
    const AttentionParams params{.scale = 0.5, .softcap = 3, .window = window};
    auto out = ops.random<float>(dout.shape(), 5), dq = ops.random<float>(q.shape(), 6);
    auto lse = ops.random<float>({kBatch, kHeads, kRows}, 7), dk = ops.random<float>(k.shape(), 8);
    auto dv = ops.random<float>(v.shape(), 9);
    Array want_out = array(out), want_dq = array(dq), want_dk(array(dk).size()), want_dv(array(dv).size());
    const auto clear = [](Array& x) {
      const size_t row = x.size() / kRows;
      std::fill(x.begin() + static_cast<int64_t>(row) * kSpan.first,
                x.begin() + static_cast<int64_t>(row) * (kSpan.first + kSpan.count), 0.0);
    };
    clear(want_out), clear(want_dq);
    range_attention(ops.context, q, k, v, kSpan, kRanges, params, out, lse);
    const int64_t flops = ops.context.flops;
    range_attention_backward(ops.context, dout, q, k, v, out, lse, kSpan, kRanges, params, {dq, dk, dv});
    EXPECT_EQ(ops.context.flops, 3 * flops);
    ops.context.flops = 0;
    for (const AttentionRange& of : kRanges) {
      const auto sees = [&](size_t i, size_t j) {
        const int64_t query = static_cast<int64_t>(i) + of.distance, key = static_cast<int64_t>(j);
        return key <= query && (window == 0 || key > query - window);
      };
      const reference::AttentionParams of_reference{.scale = 0.5, .softcap = 3, .sees = sees};
      for (int64_t head = 0; head < kHeads; ++head) {
        const int64_t group = head / 2;
        const Array queries = rows_of_head(q, of.sample, head, of.first_row, of.rows);
        const Array keys = rows_of_head(k, of.sample, group, of.first_key, of.keys);
        const Array values = rows_of_head(v, of.sample, group, of.first_key, of.keys);
        const Array dresult = rows_of_head(dout, of.sample, head, of.first_row, of.rows);
        add_rows(want_out, out.shape(), of.sample, head, of.first_row,
                 reference::attention(queries, keys, values, kD, of_reference).out);
        const auto grads = reference::attention_backward(dresult, queries, keys, values, kD, of_reference);
        add_rows(want_dq, dq.shape(), of.sample, head, of.first_row, grads.dq);
        add_rows(want_dk, dk.shape(), of.sample, group, of.first_key, grads.dk);
        add_rows(want_dv, dv.shape(), of.sample, group, of.first_key, grads.dv);
      }
    }
    expect_near(out, want_out, 1e-6, 0, "out");
    expect_near(dq, want_dq, 4e-6, 0, "dq");
    expect_near(dk, want_dk, 1e-5, 0, "dk");
    expect_near(dv, want_dv, 1e-5, 0, "dv");
  }
}

// Rows that see nothing add nothing to what other keys gave.
TEST(RangeAttention, RowsOfNoRangeAddNothing) {
  Ops ops;
  const auto q = ops.random<float>({4, 1, 2, kD}, 1), k = ops.random<float>({4, 1, 1, kD}, 2);
  const auto v = ops.random<float>({4, 1, 1, kD}, 3);
  auto out = ops.random<float>(q.shape(), 4), lse = ops.random<float>({1, 2, 4}, 5);
  auto sum = ops.random<float>(q.shape(), 6), sum_lse = ops.random<float>({1, 2, 4}, 7);
  const Array before = array(sum), lse_before = array(sum_lse);
  const std::vector<AttentionRange> ranges = {{.sample = 0, .first_row = 2, .rows = 2, .keys = 4, .distance = 4}};
  range_attention(ops.context, q, k, v, {0, 4}, ranges, {.scale = 1}, out, lse);
  EXPECT_TRUE(std::isinf(array(lse)[0]));
  merge_attention(ops.context, out, lse, {0, 4}, sum, sum_lse);
  for (size_t i = 0; i < before.size() / 2; ++i) EXPECT_EQ(array(sum)[i], before[i]);
  for (size_t i = before.size() / 2; i < before.size(); ++i) EXPECT_NE(array(sum)[i], before[i]);
  for (const size_t row : {0, 1, 4, 5}) EXPECT_EQ(array(sum_lse)[row], lse_before[row]);
}

TEST(RangeAttention, RefusesRangesOutsideItsRows) {
  Ops ops;
  const auto q = ops.random<float>({4, 1, 2, kD}, 1), k = ops.random<float>({4, 1, 1, kD}, 2);
  auto out = ops.random<float>(q.shape(), 4), lse = ops.random<float>({1, 2, 4}, 5);
  for (const AttentionRange& of : {AttentionRange{.first_row = 1, .rows = 3, .keys = 1},
                                   AttentionRange{.first_row = 2, .rows = 2, .first_key = 2, .keys = 3},
                                   AttentionRange{.sample = 1, .first_row = 2, .rows = 1, .keys = 1}}) {
    const std::vector<AttentionRange> ranges = {of};
    EXPECT_THROW(range_attention(ops.context, q, k, k, {2, 2}, ranges, {.scale = 1}, out, lse), core::Error);
  }
}

}  // namespace
}  // namespace ms::ops
