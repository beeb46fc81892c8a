// Activation functions: y = act(x) on the output of linear_fc1, or y = act(gate) * up on its halves (Shazeer 2020:
// SwiGLU, GEGLU), and their gradients. Only x is kept for backward. fp32, bf16 or fp16.
#pragma once

#include "core/tensor.h"
#include "kernels/activation.h"
#include "train/ops/context.h"

namespace ms::ops {

using kernels::Activation;

// x: [.., f] -> [.., f].
core::Tensor activation(Context& context, Activation kind, const core::TensorView& x);
// dy: [.., f] -> dx [.., f] = dy * act'(x), in the memory of x.
core::Tensor activation_backward(Context& context, Activation kind, const core::TensorView& dy, core::Tensor x);

// x: [.., 2f] = [gate | up] -> [.., f].
core::Tensor gated_activation(Context& context, Activation kind, const core::TensorView& x);
// dy: [.., f] -> dx [.., 2f], in the memory of x: dgate = dy * up * act'(gate), dup = dy * act(gate).
core::Tensor gated_activation_backward(Context& context, Activation kind, const core::TensorView& dy, core::Tensor x);

// x * sigmoid(gate), computed in fp32: an output gate (megatron/core/transformer/attention.py, _apply_output_gate). Of
// one shape.
core::Tensor sigmoid_gate(Context& context, const core::TensorView& x, const core::TensorView& gate);
// dy becomes the gradient of x, gate that of gate.
void sigmoid_gate_backward_inplace(Context& context, const core::TensorView& dy, const core::TensorView& x,
                                   const core::TensorView& gate);

// x (fp32) becomes cap * tanh(x / cap): soft-capping of logits (Gemma 2).
void softcap_inplace(Context& context, const core::TensorView& x, double cap);
// dy (fp32) *= 1 - (y / cap)^2. y: the capped values.
void softcap_backward_inplace(Context& context, const core::TensorView& dy, const core::TensorView& y, double cap);

}  // namespace ms::ops
