// Rotary embedding by tables of any angle (features.md 10, item 2; MindSpeed's npu_rotary_position_embedding):
//
//   y = x * cos + R(x) * sin     R(x) = [-x2; x1] of the halves of a head, or of neighbouring pairs
//
// where train/ops/rope.h turns by positions, in place, by one table for pairs. Tables have an angle for every element,
// and gradients of their own. x: [b, n, s, d] or [b, s, n, d] or [s, b, n, d], as `tables` says by its shape: each of
// its first three axes is x's, or 1. d is even. x and tables are fp32, bf16 or fp16 alike; arithmetic is fp32.
#pragma once

#include "core/tensor.h"
#include "kernels/rope.h"
#include "train/ops/context.h"

namespace ms::ops {

// pairs: MindSpeed's mode 0 is kHalves, mode 1 kNeighbours. Returns y, shape and dtype of x. cos, sin: [.., d].
// Throws kInvalidArgument for tables that do not fit.
core::Tensor npu_rotary_position_embedding(Context& context, const core::TensorView& x, const core::TensorView& cos,
                                           const core::TensorView& sin,
                                           kernels::RopePairs pairs = kernels::RopePairs::kHalves);

struct RotaryGradients {
  core::Tensor dx;          // shape and dtype of x
  core::Tensor dcos, dsin;  // shape and dtype of cos; undefined where not wanted
};

// dx = dy * cos - R(dy * sin). with_tables: also dcos = sum of dy * x and dsin = sum of dy * R(x) over the axes in
// which the tables are 1, summed in fp32 in the order of x, rounded once.
RotaryGradients npu_rotary_position_embedding_backward(Context& context, const core::TensorView& dy,
                                                       const core::TensorView& x, const core::TensorView& cos,
                                                       const core::TensorView& sin, kernels::RopePairs pairs,
                                                       bool with_tables);

}  // namespace ms::ops
