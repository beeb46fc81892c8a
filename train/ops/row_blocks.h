// Moves blocks of consecutive rows to other places: from the order in which ranks have sent the rows of experts to that
// of the experts.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

struct RowBlock {
  int64_t from = 0, to = 0;  // first row
  int64_t rows = 0;
};

// x [rows, ..] -> the same rows, those of each block at `to` instead of `from`; the other way round if `back`. blocks:
// each row is in one of them. x itself if no row moves.
core::Tensor move_row_blocks(Context& context, core::Tensor x, std::span<const RowBlock> blocks, bool back = false);

}  // namespace ms::ops
