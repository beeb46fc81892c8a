// Rows of ranks of which each has a part from the front of a sequence and one from the back (layout::is_zigzag), in the
// order of their positions.
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::train {

// x [seq, ..], the rows of `ranks` ranks one behind the other -> the same in the order of positions.
core::Tensor rows_by_position(ops::Context& ops, core::Tensor x, int ranks);
// The inverse.
core::Tensor rows_by_rank(ops::Context& ops, core::Tensor x, int ranks);

}  // namespace ms::train
