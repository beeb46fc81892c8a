// Activation functions of the MLP, plain and gated, and their gradients. T: float, bf16 or fp16; arithmetic in fp32.
// With AVX-512, bf16's kSilu, kGeluTanh and kFastGelu come from a sigmoid with a relative error below 1.4e-4, a 28th of
// bf16's roundoff.
#pragma once

#include <cstdint>

#include "kernels/stores.h"

namespace ms::kernels {

enum class Activation : uint8_t {
  kSilu,      // x * sigmoid(x); gated: SwiGLU (Shazeer 2020)
  kGelu,      // x * Phi(x), the error function's (Hendrycks & Gimpel 2016)
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GPT-2's, and Megatron's fused bias-GELU
  kFastGelu,  // x * sigmoid(1.702 x): the same paper's
  kRelu,      // max(x, 0); its slope at 0 is 0
};

// y[i] = act(x[i]). y may be x.
template <class T>
void activation(Activation kind, const T* x, int64_t n, T* y, Stores stores = Stores::kCached);
// dx[i] = dy[i] * act'(x[i]).
template <class T>
void activation_backward(Activation kind, const T* dy, const T* x, int64_t n, T* dx, Stores stores = Stores::kCached);

// Rows that hold [gate | up]: y[row, i] = act(x[row, i]) * x[row, f + i]; x: [rows, 2f], y: [rows, f].
template <class T>
void gated_activation(Activation kind, const T* x, int64_t rows, int64_t f, T* y, Stores stores = Stores::kCached);
// dx: [rows, 2f], of dy [rows, f]: dgate = dy * up * act'(gate), dup = dy * act(gate).
template <class T>
void gated_activation_backward(Activation kind, const T* dy, const T* x, int64_t rows, int64_t f, T* dx,
                               Stores stores = Stores::kCached);

// y[i] = cap * tanh(x[i] / cap): soft cap of logits (Gemma 2). y may be x.
void softcap(const float* x, int64_t n, float cap, float* y);
// dx[i] = dy[i] * (1 - (y[i] / cap)^2), of the capped y. dx may be dy.
void softcap_backward(const float* dy, const float* y, int64_t n, float cap, float* dx);

// y[i] = e^x[i]; relative error below 1e-6 where the result is a normal number, 0 below that, inf above FLT_MAX.
void exp(const float* x, int64_t n, float* y);

}  // namespace ms::kernels
