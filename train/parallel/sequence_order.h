// Rows of ranks of which each has a part from the front of a sequence and one from the back (layout::is_zigzag), in the
// order of their positions.
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::train {

// x [seq, ..] of any dtype, the rows of `ranks` ranks one behind the other -> a copy (tag act) in the order of
// positions. seq: a multiple of 2 * ranks, or of anything with one rank.
core::Tensor rows_by_position(ops::Context& ops, core::Tensor x, int ranks);
// The inverse.
core::Tensor rows_by_rank(ops::Context& ops, core::Tensor x, int ranks);

}  // namespace ms::train
