#include "kernels/norm.h"

#define MS_KERNEL_BODY "kernels/impl/norm.inl"
#include "kernels/impl/avx512_bf16.h"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

template <class T>
void rms_norm(const T* x, const T* gamma, float gamma_offset, int64_t rows, int64_t h, float epsilon, T* y, float* rstd,
              Stores stores) {
  MS_DISPATCH(rms_norm(x, gamma, gamma_offset, rows, h, epsilon, y, rstd, stores));
}
template void rms_norm(const float*, const float*, float, int64_t, int64_t, float, float*, float*, Stores);
template void rms_norm(const bf16*, const bf16*, float, int64_t, int64_t, float, bf16*, float*, Stores);
template void rms_norm(const fp16*, const fp16*, float, int64_t, int64_t, float, fp16*, float*, Stores);

template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* gamma, float gamma_offset, const float* rstd,
                       const T* dresidual, int64_t rows, int64_t h, T* dx, float* dgamma, Stores stores) {
  MS_DISPATCH(rms_norm_backward(dy, x, gamma, gamma_offset, rstd, dresidual, rows, h, dx, dgamma, stores));
}
template void rms_norm_backward(const float*, const float*, const float*, float, const float*, const float*, int64_t,
                                int64_t, float*, float*, Stores);
template void rms_norm_backward(const bf16*, const bf16*, const bf16*, float, const float*, const bf16*, int64_t,
                                int64_t, bf16*, float*, Stores);
template void rms_norm_backward(const fp16*, const fp16*, const fp16*, float, const float*, const fp16*, int64_t,
                                int64_t, fp16*, float*, Stores);

template <class T>
void layer_norm(const T* x, const T* gamma, float gamma_offset, const T* beta, int64_t rows, int64_t h, float epsilon,
                T* y, float* mean, float* rstd, Stores stores) {
  MS_DISPATCH(layer_norm(x, gamma, gamma_offset, beta, rows, h, epsilon, y, mean, rstd, stores));
}
template void layer_norm(const float*, const float*, float, const float*, int64_t, int64_t, float, float*, float*,
                         float*, Stores);
template void layer_norm(const bf16*, const bf16*, float, const bf16*, int64_t, int64_t, float, bf16*, float*, float*,
                         Stores);
template void layer_norm(const fp16*, const fp16*, float, const fp16*, int64_t, int64_t, float, fp16*, float*, float*,
                         Stores);

template <class T>
void layer_norm_backward(const T* dy, const T* x, const T* gamma, float gamma_offset, const float* mean,
                         const float* rstd, const T* dresidual, int64_t rows, int64_t h, T* dx, float* dgamma,
                         float* dbeta, Stores stores) {
  MS_DISPATCH(
      layer_norm_backward(dy, x, gamma, gamma_offset, mean, rstd, dresidual, rows, h, dx, dgamma, dbeta, stores));
}
template void layer_norm_backward(const float*, const float*, const float*, float, const float*, const float*,
                                  const float*, int64_t, int64_t, float*, float*, float*, Stores);
template void layer_norm_backward(const bf16*, const bf16*, const bf16*, float, const float*, const float*, const bf16*,
                                  int64_t, int64_t, bf16*, float*, float*, Stores);
template void layer_norm_backward(const fp16*, const fp16*, const fp16*, float, const float*, const float*, const fp16*,
                                  int64_t, int64_t, fp16*, float*, float*, Stores);

}  // namespace ms::kernels
