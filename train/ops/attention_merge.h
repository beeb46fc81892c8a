// Adds a partial attention over other keys to what has been attended so far, in place: the step of ring attention
// (ring_attention.h gives a new result, and takes maximum and sum apart).
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"
#include "train/ops/range_attention.h"

namespace ms::ops {

// out [s, b, nh, d], lse fp32 [b, nh, s]: of some rows of queries, as range_attention fills them. Adds these rows
// to sum, fp32 of the shape of out, and sum_lse: with l the logarithm of e^sum_lse + e^lse, sum = sum e^(sum_lse - l) +
// out e^(lse - l). A row that has seen no key on either side, whose lse is -inf, adds nothing.
void merge_attention(Context& context, const core::TensorView& out, const core::TensorView& lse, RowSpan rows,
                     const core::TensorView& sum, const core::TensorView& sum_lse);

}  // namespace ms::ops
