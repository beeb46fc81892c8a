// Operators as compositions of simple passes over memory (--optimization-level 0, --no-use-fused-rmsnorm and the like):
// what a framework without fused operators runs, and an independent second form of the fused ones. Shapes, dtypes,
// results and errors as of the functions of the same names in norm.h, activation.h, rope.h and attention.h; arithmetic
// is fp32, each pass is an operator of its own in a trace, and intermediate results are tensors (tag tmp).
#pragma once

#include "core/tensor.h"
#include "train/ops/attention.h"
#include "train/ops/context.h"
#include "train/ops/norm.h"
#include "train/ops/rope.h"

namespace ms::ops::unfused {

core::Tensor rms_norm(Context& context, const core::TensorView& x, const core::TensorView& gamma,
                      const NormParams& params, core::Tensor* rstd);
core::Tensor rms_norm_backward(Context& context, const core::TensorView& dy, const core::TensorView& x,
                               const core::TensorView& gamma, const NormParams& params, const core::TensorView& rstd,
                               const core::TensorView& dgamma, const core::TensorView* dresidual = nullptr);

// gated_activation with SiLU: silu(gate), then its product with up.
core::Tensor swiglu(Context& context, const core::TensorView& x);
core::Tensor swiglu_backward(Context& context, const core::TensorView& dy, core::Tensor x);

// Returns the rotated tensor: x * cos + R(x) * sin, where R maps each pair (x1, x2) to (-x2, x1). positions: [seq,
// batch]; empty: from 0 on.
core::Tensor rope(Context& context, const core::TensorView& x, const RopeTable& table,
                  std::span<const int32_t> positions, bool inverse, int64_t first_element = 0);

// With all scores of a head in memory, fp32 [s, s] for each thread, and their softmax in place.
AttentionResult causal_attention(Context& context, const core::TensorView& q, const core::TensorView& k,
                                 const core::TensorView& v, const AttentionParams& params);
QkvGradients causal_attention_backward(Context& context, const core::TensorView& dout, const core::TensorView& q,
                                       const core::TensorView& k, const core::TensorView& v,
                                       const core::TensorView& out, const core::TensorView& lse,
                                       const AttentionParams& params);

}  // namespace ms::ops::unfused
