#include "train/ops/row_blocks.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "train/ops/detail/op_scope.h"

namespace ms::ops {

core::Tensor move_row_blocks(Context& context, core::Tensor x, std::span<const RowBlock> blocks, bool back) {
  const auto stays = [](const RowBlock& block) { return block.rows == 0 || block.from == block.to; };
  if (x.size() == 0 || std::ranges::all_of(blocks, stays)) return x;
  const detail::OpScope scope(context, "ms::move_row_blocks", x.view());
  core::Tensor y(context.arena, x.dtype(), x.shape(), core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  const int64_t row_bytes = x.size_bytes() / x.dim(0);
  context.pool.parallel_for(static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const RowBlock& block = blocks[static_cast<size_t>(i)];
      MS_CHECK(block.rows >= 0 && std::max(block.from, block.to) + block.rows <= x.dim(0), "rows ", block.from, " and ",
               block.to, " of ", x.dim(0), ": a block of ", block.rows);
      const int64_t from = back ? block.to : block.from, to = back ? block.from : block.to;
      std::memcpy(y.bytes() + to * row_bytes, x.bytes() + from * row_bytes,
                  static_cast<size_t>(block.rows * row_bytes));
    }
  });
  return y;
}

}  // namespace ms::ops
