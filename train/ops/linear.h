// y = x * weight^T (+ bias) and its two gradients, through kernels/gemm.h.
//
// Operands are fp32 or bf16 (x, dy and weight alike); products are summed in fp32. Every call adds its 2*m*n*k to
// context.flops. With context.any_threads no bit depends on the number of threads. packed: copies of the weight that
// are read instead, where x, or dy, is of its type; may be null.
#pragma once

#include <optional>
#include <string>

#include "core/tensor.h"
#include "kernels/activation.h"
#include "train/ops/context.h"
#include "train/ops/packed_weight.h"

namespace ms::ops {

// "gemm fp32: tiles; onednn_bf16 passed over: bf16 operands only": what computes a product of two matrices of this
// dtype on this CPU, and why each implementation before it does not. For --log-level debug.
std::string explain_gemm(const Context& context, core::DType dtype);

// What a product does besides: y = act(x * weight^T + bias) + residual, in fp32 and rounded once (kernels/gemm.h). In
// training an activation's argument is needed by its gradient: there it is an operator of its own.
struct LinearEpilogue {
  const core::TensorView* bias = nullptr;  // [out], in x's dtype
  std::optional<kernels::Activation> activation;
  const core::TensorView* residual = nullptr;  // [.., out], in x's dtype; apart from the result
};

// Returns [.., out] in x's dtype. x: [.., in], weight: [out, in].
core::Tensor linear(Context& context, const core::TensorView& x, const core::TensorView& weight,
                    const LinearEpilogue& epilogue = {}, PackedWeight* packed = nullptr);

// y [.., out] += bias [out], of one dtype: a row-parallel layer's bias, added once behind the reduction.
void add_bias_inplace(Context& context, const core::TensorView& y, const core::TensorView& bias);

// Returns fp32 [.., out] whatever the operands are: logits.
core::Tensor linear_fp32(Context& context, const core::TensorView& x, const core::TensorView& weight,
                         PackedWeight* packed = nullptr);

// Returns dx [.., in] = dy * weight in weight's dtype. dy: [.., out] (fp32 is taken with a bf16 weight too: dlogits).
core::Tensor linear_dgrad(Context& context, const core::TensorView& dy, const core::TensorView& weight,
                          PackedWeight* packed = nullptr);

// main_grad += dy^T * x, fused into the product (features.md 5.8). x: [.., in], dy: [.., out] (dtypes may differ),
// main_grad: fp32 [out, in].
void linear_wgrad(Context& context, const core::TensorView& x, const core::TensorView& dy,
                  const core::TensorView& main_grad);

// main_grad [out] fp32 += sum of dy's rows. dy: [.., out].
void bias_grad(Context& context, const core::TensorView& dy, const core::TensorView& main_grad);

}  // namespace ms::ops
