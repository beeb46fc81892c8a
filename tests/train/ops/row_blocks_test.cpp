#include "train/ops/row_blocks.h"

#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

TEST(RowBlocks, MoveThereAndBack) {
  for (const int threads : {1, 3}) {
    Ops ops(threads);
    const core::Tensor x = ops.random<float>({6, 5}, 1);
    const std::vector<RowBlock> blocks = {{0, 4, 2}, {2, 0, 1}, {3, 3, 0}, {3, 1, 3}};
    const core::Tensor y = move_row_blocks(ops.context, ops.tensor(values<float>(x), {6, 5}), blocks);
    const int64_t from[] = {2, 3, 4, 5, 0, 1};
    for (int64_t row = 0; row < 6; ++row)
      EXPECT_TRUE(same_bytes(y.view().rows(row, row + 1), x.view().rows(from[row], from[row] + 1))) << row;
    const core::Tensor again =
        move_row_blocks(ops.context, ops.tensor(values<float>(y), {6, 5}), blocks, /*back=*/true);
    EXPECT_TRUE(same_bytes(again, x));
  }
}

TEST(RowBlocks, NothingIsCopiedWhereNoRowMoves) {
  Ops ops;
  core::Tensor x = ops.random<float>({3, 2}, 1);
  const std::byte* const data = x.bytes();
  const std::vector<RowBlock> blocks = {{0, 0, 1}, {1, 1, 2}};
  EXPECT_EQ(move_row_blocks(ops.context, std::move(x), blocks).bytes(), data);
  EXPECT_EQ(move_row_blocks(ops.context, ops.zeros({0, 4}), blocks).dim(0), 0);
}

}  // namespace
}  // namespace ms::ops
