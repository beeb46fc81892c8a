// A row on its way into the residual stream: scaled, dropped and added, and its gradients. T: float, bf16 or fp16;
// Z: T or float; arithmetic in fp32. Factors may be null, which is 1 everywhere, and the residual too, which is 0.
#pragma once

#include <cstdint>

namespace ms::kernels {

// z[i] = x[i] * rowscale * layerscale[i] * factors[i] + residual[i], rounded once. factors: of kernels/dropout.h.
// z may be residual. past_caches: receives z as well, by streaming stores (kernels/stores.h), while it is read: where z
// is wanted again at once and is too large to stay; may be null.
template <class T, class Z>
void dropout_add(const T* x, float rowscale, const float* layerscale, const float* factors, const Z* residual,
                 int64_t h, Z* z, Z* past_caches = nullptr);

// dx[i] = dz[i] * factors[i] * rowscale * layerscale[i]; dlayerscale[i] += dz[i] * factors[i] * x[i] * rowscale, may be
// null. Returns rowscale's gradient, the sum of dz[i] * factors[i] * x[i] * layerscale[i].
template <class T>
float dropout_add_backward(const float* dz, const T* x, float rowscale, const float* layerscale, const float* factors,
                           int64_t h, T* dx, float* dlayerscale);

}  // namespace ms::kernels
