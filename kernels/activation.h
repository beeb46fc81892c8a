// SwiGLU (Shazeer 2020) of rows that hold [gate | up], and its gradient. T: float, bf16 or fp16; arithmetic in fp32.
#pragma once

#include <cstdint>

namespace ms::kernels {

// y[row, i] = silu(x[row, i]) * x[row, f + i]; x: [rows, 2f], y: [rows, f].
template <class T>
void swiglu(const T* x, int64_t rows, int64_t f, T* y);

// dx: [rows, 2f], of dy [rows, f]: dgate = dy * up * s * (1 + gate * (1 - s)), dup = dy * gate * s, s = sigmoid(gate).
template <class T>
void swiglu_backward(const T* dy, const T* x, int64_t rows, int64_t f, T* dx);

// y[i] = e^x[i]; relative error below 1e-6 where the result is a normal number, 0 below that, inf above FLT_MAX.
void exp(const float* x, int64_t n, float* y);

}  // namespace ms::kernels
