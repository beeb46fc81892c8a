// MLP activation functions, plain and gated, and their gradients. T: float, bf16 or fp16; arithmetic in fp32. With
// AVX-512, the bf16 versions of kSilu, kGeluTanh, kFastGelu and sigmoid_gate use a sigmoid with a relative error below
// 1.4e-4, 1/28 of bf16's roundoff.
#pragma once

#include <cstdint>

#include "kernels/stores.h"

namespace ms::kernels {

enum class Activation : uint8_t {
  kSilu,         // x * sigmoid(x); gated: SwiGLU (Shazeer 2020)
  kGelu,         // x * Phi(x), with the error function (Hendrycks & Gimpel 2016)
  kGeluTanh,     // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): used by GPT-2 and Megatron's fused bias-GELU
  kFastGelu,     // x * sigmoid(1.702 x), from the same paper
  kRelu,         // max(x, 0); derivative 0 at x = 0
  kSquaredRelu,  // max(x, 0)^2 (So et al. 2021, Primer)
};

// y[i] = act(x[i]). y may be x.
template <class T>
void activation(Activation kind, const T* x, int64_t n, T* y, Stores stores = Stores::kCached);
// dx[i] = dy[i] * act'(x[i]).
template <class T>
void activation_backward(Activation kind, const T* dy, const T* x, int64_t n, T* dx, Stores stores = Stores::kCached);

// Each row of x is [gate | up]: y[row, i] = act(x[row, i]) * x[row, f + i]; x: [rows, 2f], y: [rows, f].
template <class T>
void gated_activation(Activation kind, const T* x, int64_t rows, int64_t f, T* y, Stores stores = Stores::kCached);
// dx: [rows, 2f], from dy [rows, f]: dgate = dy * up * act'(gate), dup = dy * act(gate).
template <class T>
void gated_activation_backward(Activation kind, const T* dy, const T* x, int64_t rows, int64_t f, T* dx,
                               Stores stores = Stores::kCached);

// y[i] = x[i] * sigmoid(gate[i]).
template <class T>
void sigmoid_gate(const T* x, const T* gate, int64_t n, T* y, Stores stores = Stores::kCached);
// dx[i] = dy[i] * sigmoid(gate[i]), dgate[i] = dy[i] * x[i] * sigmoid'(gate[i]). dx may be dy, dgate may be gate.
template <class T>
void sigmoid_gate_backward(const T* dy, const T* x, const T* gate, int64_t n, T* dx, T* dgate);

// y[i] = cap * tanh(x[i] / cap), the logit soft cap of Gemma 2. y may be x.
void softcap(const float* x, int64_t n, float cap, float* y);
// dx[i] = dy[i] * (1 - (y[i] / cap)^2), where y is softcap's result. dx may be dy.
void softcap_backward(const float* dy, const float* y, int64_t n, float cap, float* dx);

// y[i] = e^x[i]; relative error below 1e-6 where the result is a normal number, 0 if it is smaller, inf above FLT_MAX.
void exp(const float* x, int64_t n, float* y);

}  // namespace ms::kernels
