// A linear layer whose sums are fp64, each rounded to fp32 once: a router's, where the order of near scores matters
// (--moe-router-dtype fp64; RouterGatingLinearFunction of megatron/core/transformer/moe/moe_utils.py). Operands are
// fp32, bf16 or fp16, and exact in fp64. Naive products: for layers with few rows of weights.
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// x [.., in], weight [out, in] -> fp32 [.., out].
core::Tensor linear_fp64(Context& context, const core::TensorView& x, const core::TensorView& weight);
// dy fp32 [.., out] -> dx [.., in] in weight's dtype.
core::Tensor linear_fp64_dgrad(Context& context, const core::TensorView& dy, const core::TensorView& weight);
// main_grad [out, in] fp32 += dy^T * x.
void linear_fp64_wgrad(Context& context, const core::TensorView& x, const core::TensorView& dy,
                       const core::TensorView& main_grad);

}  // namespace ms::ops
