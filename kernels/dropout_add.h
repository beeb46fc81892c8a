// Adds a row to the residual stream: scale, dropout and add, and the gradients. T: float, bf16 or fp16; Z: T or float;
// arithmetic in fp32. A null factor array means 1 everywhere, a null residual 0.
#pragma once

#include <cstdint>

namespace ms::kernels {

// z[i] = x[i] * rowscale * layerscale[i] * factors[i] + residual[i], rounded once. factors: see kernels/dropout.h. z
// may be residual. non_temporal: also receives z, by streaming stores (kernels/stores.h); z itself is stored through
// the caches, for when it is read at once but a result as large would not stay cached. May be null.
template <class T, class Z>
void dropout_add(const T* x, float rowscale, const float* layerscale, const float* factors, const Z* residual,
                 int64_t h, Z* z, Z* non_temporal = nullptr);

// dx[i] = dz[i] * factors[i] * rowscale * layerscale[i]; dlayerscale[i] += dz[i] * factors[i] * x[i] * rowscale, may be
// null. Returns rowscale's gradient, the sum of dz[i] * factors[i] * x[i] * layerscale[i].
template <class T>
float dropout_add_backward(const float* dz, const T* x, float rowscale, const float* layerscale, const float* factors,
                           int64_t h, T* dx, float* dlayerscale);

}  // namespace ms::kernels
