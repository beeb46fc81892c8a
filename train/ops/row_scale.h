// Weights of rows: of what an expert computes for a token, and of the gate of shared experts. a, b and x: fp32, bf16 or
// fp16, [.., h]; weights: fp32, one for each row.
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// Returns fp32 [rows]: the sum of a * b over each row, in order. a, b: of the same shape and dtype.
core::Tensor row_dots(Context& context, const core::TensorView& a, const core::TensorView& b);

// x[row] *= weights[row].
void scale_rows_inplace(Context& context, const core::TensorView& x, const core::TensorView& weights);

}  // namespace ms::ops
