// RMSNorm (Zhang & Sennrich 2019) of rows, and its gradient. T: float, bf16 or fp16; arithmetic in fp32.
#pragma once

#include <cstdint>

namespace ms::kernels {

// y[i] = x[i] * r * gamma[i] with r = 1 / sqrt(mean(x^2) + epsilon), for each of `rows` rows of h elements.
// rstd: receives r of each row; may be null. y may be x.
template <class T>
void rms_norm(const T* x, const T* gamma, int64_t rows, int64_t h, float epsilon, T* y, float* rstd);

// dx = r * (gamma*dy - xhat * mean(gamma*dy*xhat)) + dresidual, xhat = x * r; dresidual may be null.
// dgamma [h], fp32: += sum over these rows of dy * xhat. dx may be dy or dresidual.
template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* gamma, const float* rstd, const T* dresidual, int64_t rows,
                       int64_t h, T* dx, float* dgamma);

}  // namespace ms::kernels
