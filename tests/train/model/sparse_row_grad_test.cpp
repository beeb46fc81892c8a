#include "train/model/sparse_row_grad.h"

#include <vector>

#include "core/error.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/elementwise.h"
#include "train/ops/embedding.h"

namespace ms::train {
namespace {

constexpr int64_t kRows = 11, kWidth = 70, kFirst = 100;

// Bitwise equal to a dense accumulator of all rows, in every step.
TEST(SparseRowGrad, EqualsADenseAccumulatorBitwise) {
  ops::Ops ops(2);
  SparseRowGrad grad(kRows, kWidth, 12);
  const auto seen = ops.random<float>({kRows, kWidth}, 1), want = ops.random<float>({kRows, kWidth}, 1);
  const std::vector<std::vector<int32_t>> steps[] = {
      {{103, 100, 103, 99, 111}, {103, 110, 100}}, {{101, 101, 101, 101}}, {{99, 111}}, {{}}};
  uint64_t salt = 2;
  for (const auto& step : steps) {
    const auto whole = ops.zeros({kRows, kWidth});
    for (const std::vector<int32_t>& ids : step) {
      const auto dy = ops.random<float>({static_cast<int64_t>(ids.size()), kWidth}, salt++);
      grad.add(ops.context, ids, dy, kFirst);
      ops::embedding_backward(ops.context, ids, dy, whole, kFirst);
    }
    grad.fold(ops.context, seen);
    ops::accumulate_fp32(ops.context, want, whole);
    EXPECT_TRUE(ops::same_bytes(seen, want));
  }
}

TEST(SparseRowGrad, HoldsAtMostTheAddedRowsUntilTheFold) {
  ops::Ops ops;
  SparseRowGrad few(1000, kWidth, 3), all(5, kWidth, 1000);
  const auto dy = ops.random<float>({4, kWidth}, 1), main_grad = ops.random<float>({5, kWidth}, 2);
  const auto held = [&] { return ops.arena.current_bytes(core::MemoryTag::kGrad); };
  EXPECT_EQ(held(), 0);
  few.add(ops.context, std::vector<int32_t>{7, 8, 7, 9}, dy, 0);
  EXPECT_EQ(held(), 3 * kWidth * 4);
  all.add(ops.context, std::vector<int32_t>{1, 2, 1, 3}, dy, 0);
  EXPECT_EQ(held(), (3 + 5) * kWidth * 4);
  EXPECT_THROW(few.add(ops.context, std::vector<int32_t>{7, 8, 9, 10}, dy, 0), core::Error);
  all.fold(ops.context, main_grad);
  EXPECT_EQ(held(), 3 * kWidth * 4);
}

}  // namespace
}  // namespace ms::train
