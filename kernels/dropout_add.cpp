#include "kernels/dropout_add.h"

#define MS_KERNEL_BODY "kernels/impl/dropout_add.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

template <class T, class Z>
void dropout_add(const T* x, float rowscale, const float* layerscale, const float* factors, const Z* residual,
                 int64_t h, Z* z, Z* non_temporal) {
  MS_DISPATCH(dropout_add(x, rowscale, layerscale, factors, residual, h, z, non_temporal));
}
template void dropout_add(const float*, float, const float*, const float*, const float*, int64_t, float*, float*);
template void dropout_add(const bf16*, float, const float*, const float*, const bf16*, int64_t, bf16*, bf16*);
template void dropout_add(const bf16*, float, const float*, const float*, const float*, int64_t, float*, float*);
template void dropout_add(const fp16*, float, const float*, const float*, const fp16*, int64_t, fp16*, fp16*);
template void dropout_add(const fp16*, float, const float*, const float*, const float*, int64_t, float*, float*);

template <class T>
float dropout_add_backward(const float* dz, const T* x, float rowscale, const float* layerscale, const float* factors,
                           int64_t h, T* dx, float* dlayerscale) {
  MS_DISPATCH(dropout_add_backward(dz, x, rowscale, layerscale, factors, h, dx, dlayerscale));
}
template float dropout_add_backward(const float*, const float*, float, const float*, const float*, int64_t, float*,
                                    float*);
template float dropout_add_backward(const float*, const bf16*, float, const float*, const float*, int64_t, bf16*,
                                    float*);
template float dropout_add_backward(const float*, const fp16*, float, const float*, const float*, int64_t, fp16*,
                                    float*);

}  // namespace ms::kernels
