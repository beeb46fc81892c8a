#include "kernels/activation.h"

#define MS_KERNEL_BODY "kernels/impl/activation.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

template <class T>
void swiglu(const T* x, int64_t rows, int64_t f, T* y) {
  MS_DISPATCH(swiglu(x, rows, f, y));
}
template void swiglu(const float*, int64_t, int64_t, float*);
template void swiglu(const bf16*, int64_t, int64_t, bf16*);
template void swiglu(const fp16*, int64_t, int64_t, fp16*);

template <class T>
void swiglu_backward(const T* dy, const T* x, int64_t rows, int64_t f, T* dx) {
  MS_DISPATCH(swiglu_backward(dy, x, rows, f, dx));
}
template void swiglu_backward(const float*, const float*, int64_t, int64_t, float*);
template void swiglu_backward(const bf16*, const bf16*, int64_t, int64_t, bf16*);
template void swiglu_backward(const fp16*, const fp16*, int64_t, int64_t, fp16*);

void exp(const float* x, int64_t n, float* y) { MS_DISPATCH(exp_span(x, n, y)); }

}  // namespace ms::kernels
