// A linear layer, y = x * weight^T (+ bias), and its two gradients, through kernels/gemm/gemm.h.
//
// Operands are fp32 or bf16 (x, dy and weight alike); products are summed in fp32. Every call adds its 2*m*n*k to
// context.flops. With context.deterministic no bit depends on the number of threads. packed: packed copies of the
// weight, read instead of it where x, or dy, has the weight's dtype; may be null.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/tensor.h"
#include "kernels/activation.h"
#include "train/ops/context.h"
#include "train/ops/packed_weight.h"

namespace ms::ops {

// Which implementation multiplies two matrices of this dtype on this CPU, and why each one before it in the list does
// not: "gemm fp32: packed; onednn_bf16 passed over: bf16 operands only". For --log-level debug.
std::string explain_gemm(const Context& context, core::DType dtype);

// Operations fused into a product: y = act(x * weight^T + bias) + residual, computed in fp32 and rounded once
// (kernels/gemm/gemm.h). In training the gradient of an activation needs its argument, so the activation is an operator
// of its own.
struct LinearEpilogue {
  const core::TensorView* bias = nullptr;  // [out], in x's dtype
  std::optional<kernels::Activation> activation;
  const core::TensorView* residual = nullptr;  // [.., out], in x's dtype; must not overlap the result
};

// Returns [.., out] in x's dtype. x: [.., in], weight: [out, in].
core::Tensor linear(Context& context, const core::TensorView& x, const core::TensorView& weight,
                    const LinearEpilogue& epilogue = {}, PackedWeight* packed = nullptr);

// The same into y, [.., out] in x's dtype, whose memory does not overlap the operands: rows of a larger result.
void linear_into(Context& context, const core::TensorView& x, const core::TensorView& weight, const core::TensorView& y,
                 const LinearEpilogue& epilogue = {}, PackedWeight* packed = nullptr);

// y [.., out] += bias [out], of the same dtype: the bias of a row-parallel layer, added once, after the reduction.
void add_bias_inplace(Context& context, const core::TensorView& y, const core::TensorView& bias);

// Returns fp32 [.., out] for operands of any dtype: logits.
core::Tensor linear_fp32(Context& context, const core::TensorView& x, const core::TensorView& weight,
                         PackedWeight* packed = nullptr);

// Returns dx [.., in] = dy * weight in weight's dtype. dy: [.., out]; fp32 is allowed with a bf16 weight, for dlogits.
core::Tensor linear_dgrad(Context& context, const core::TensorView& dy, const core::TensorView& weight,
                          PackedWeight* packed = nullptr);

// The same into dx.
void linear_dgrad_into(Context& context, const core::TensorView& dy, const core::TensorView& weight,
                       const core::TensorView& dx, PackedWeight* packed = nullptr);

// How a product of a weight's gradient is added to main_grad.
enum class WeightGradientSum : uint8_t {
  kInProduct,  // it is accumulated there, and never rounded
  // It is rounded to x's dtype, in memory of its own, and then added, as by autograd and Megatron's DDP
  // (megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
  kRounded,
};

// main_grad += dy^T * x. x: [.., in], dy: [.., out] (dtypes may differ), main_grad: fp32 [out, in].
void linear_wgrad(Context& context, const core::TensorView& x, const core::TensorView& dy,
                  const core::TensorView& main_grad, WeightGradientSum sum = WeightGradientSum::kInProduct);

// main_grad [out] fp32 += sum of the rows of dy. dy: [.., out].
void bias_grad(Context& context, const core::TensorView& dy, const core::TensorView& main_grad);

}  // namespace ms::ops
