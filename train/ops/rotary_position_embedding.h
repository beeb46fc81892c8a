// Rotary embedding with tables of arbitrary angles (MindSpeed's npu_rotary_position_embedding):
//
//   y = x * cos + R(x) * sin     R(x) = [-x2; x1] of the halves of a head, or of neighbouring pairs
//
// Unlike train/ops/rope.h, which rotates in place with one angle per position and pair, tables have an angle for every
// element, and gradients. x: [b, n, s, d] or [b, s, n, d] or [s, b, n, d]; the shape of the tables decides which: each
// of their first three axes has x's length, or 1. d is even. x and tables have one dtype, fp32, bf16 or fp16;
// arithmetic is fp32.
#pragma once

#include "core/tensor.h"
#include "kernels/rope.h"
#include "train/ops/context.h"

namespace ms::ops {

// pairs: kHalves is MindSpeed's mode 0, kNeighbours its mode 1. Returns y, shape and dtype of x. cos, sin: [.., d].
// Throws kInvalidArgument for tables that do not fit.
core::Tensor npu_rotary_position_embedding(Context& context, const core::TensorView& x, const core::TensorView& cos,
                                           const core::TensorView& sin,
                                           kernels::RopePairs pairs = kernels::RopePairs::kHalves);

struct RotaryGradients {
  core::Tensor dx;          // shape and dtype of x
  core::Tensor dcos, dsin;  // shape and dtype of cos; undefined unless requested
};

// dx = dy * cos - R(dy * sin). with_tables: also dcos = sum of dy * x and dsin = sum of dy * R(x) over the axes in
// which the tables have length 1, summed in fp32 in the order of x and rounded once.
RotaryGradients npu_rotary_position_embedding_backward(Context& context, const core::TensorView& dy,
                                                       const core::TensorView& x, const core::TensorView& cos,
                                                       const core::TensorView& sin, kernels::RopePairs pairs,
                                                       bool with_tables);

}  // namespace ms::ops
