// SwiGLU, Shazeer 2020: y = silu(gate) * up, on the concatenated output of linear_fc1; only x is kept for backward.
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// x: [.., 2f] = [gate | up] -> [.., f], fp32 or bf16.
core::Tensor swiglu(Context& context, const core::TensorView& x);

// dy: [.., f] -> dx [.., 2f]: dgate = dy * up * s * (1 + gate * (1 - s)), dup = dy * gate * s, with s = sigmoid(gate).
core::Tensor swiglu_backward(Context& context, const core::TensorView& dy, const core::TensorView& x);

}  // namespace ms::ops
