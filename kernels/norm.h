// RMSNorm (Zhang & Sennrich 2019) and LayerNorm (Ba et al. 2016) of rows, and their gradients. T: float, bf16 or fp16;
// arithmetic in fp32.
//
// g[i] = gamma[i] + gamma_offset: the offset is 1 where weights are stored centred on zero (Megatron's
// --apply-layernorm-1p), else 0.
#pragma once

#include <cstdint>

#include "kernels/stores.h"

namespace ms::kernels {

// y[i] = x[i] * r * g[i] with r = 1 / sqrt(mean(x^2) + epsilon), for each of `rows` rows of h elements.
// rstd: receives r of each row; may be null. y may be x.
template <class T>
void rms_norm(const T* x, const T* gamma, float gamma_offset, int64_t rows, int64_t h, float epsilon, T* y, float* rstd,
              Stores stores = Stores::kCached);

// dx = r * (g*dy - xhat * mean(g*dy*xhat)) + dresidual, xhat = x * r; dresidual may be null.
// dgamma [h], fp32: += sum over these rows of dy * xhat. dx may be dy or dresidual.
template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* gamma, float gamma_offset, const float* rstd,
                       const T* dresidual, int64_t rows, int64_t h, T* dx, float* dgamma,
                       Stores stores = Stores::kCached);

// y[i] = (x[i] - m) * r * g[i] + beta[i] with m = mean(x), r = 1 / sqrt(mean((x - m)^2) + epsilon).
// mean, rstd: receive m and r of each row; both may be null. y may be x.
template <class T>
void layer_norm(const T* x, const T* gamma, float gamma_offset, const T* beta, int64_t rows, int64_t h, float epsilon,
                T* y, float* mean, float* rstd, Stores stores = Stores::kCached);

// dx = r * (g*dy - mean(g*dy) - xhat * mean(g*dy*xhat)) + dresidual, xhat = (x - m) * r; dresidual may be null.
// dgamma, dbeta [h], fp32: += sums over these rows of dy * xhat and of dy. dx may be dy or dresidual.
template <class T>
void layer_norm_backward(const T* dy, const T* x, const T* gamma, float gamma_offset, const float* mean,
                         const float* rstd, const T* dresidual, int64_t rows, int64_t h, T* dx, float* dgamma,
                         float* dbeta, Stores stores = Stores::kCached);

}  // namespace ms::kernels
