#include "kernels/activation.h"

#define MS_KERNEL_BODY "kernels/impl/activation.inl"
#include "kernels/impl/avx512_bf16.h"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

template <class T>
void activation(Activation kind, const T* x, int64_t n, T* y, Stores stores) {
  MS_DISPATCH(activation(kind, x, n, y, stores));
}
template void activation(Activation, const float*, int64_t, float*, Stores);
template void activation(Activation, const bf16*, int64_t, bf16*, Stores);
template void activation(Activation, const fp16*, int64_t, fp16*, Stores);

template <class T>
void activation_backward(Activation kind, const T* dy, const T* x, int64_t n, T* dx, Stores stores) {
  MS_DISPATCH(activation_backward(kind, dy, x, n, dx, stores));
}
template void activation_backward(Activation, const float*, const float*, int64_t, float*, Stores);
template void activation_backward(Activation, const bf16*, const bf16*, int64_t, bf16*, Stores);
template void activation_backward(Activation, const fp16*, const fp16*, int64_t, fp16*, Stores);

template <class T>
void gated_activation(Activation kind, const T* x, int64_t rows, int64_t f, T* y, Stores stores) {
  MS_DISPATCH(gated_activation(kind, x, rows, f, y, stores));
}
template void gated_activation(Activation, const float*, int64_t, int64_t, float*, Stores);
template void gated_activation(Activation, const bf16*, int64_t, int64_t, bf16*, Stores);
template void gated_activation(Activation, const fp16*, int64_t, int64_t, fp16*, Stores);

template <class T>
void gated_activation_backward(Activation kind, const T* dy, const T* x, int64_t rows, int64_t f, T* dx,
                               Stores stores) {
  MS_DISPATCH(gated_activation_backward(kind, dy, x, rows, f, dx, stores));
}
template void gated_activation_backward(Activation, const float*, const float*, int64_t, int64_t, float*, Stores);
template void gated_activation_backward(Activation, const bf16*, const bf16*, int64_t, int64_t, bf16*, Stores);
template void gated_activation_backward(Activation, const fp16*, const fp16*, int64_t, int64_t, fp16*, Stores);

template <class T>
void sigmoid_gate(const T* x, const T* gate, int64_t n, T* y, Stores stores) {
  MS_DISPATCH(sigmoid_gate(x, gate, n, y, stores));
}
template void sigmoid_gate(const float*, const float*, int64_t, float*, Stores);
template void sigmoid_gate(const bf16*, const bf16*, int64_t, bf16*, Stores);
template void sigmoid_gate(const fp16*, const fp16*, int64_t, fp16*, Stores);

template <class T>
void sigmoid_gate_backward(const T* dy, const T* x, const T* gate, int64_t n, T* dx, T* dgate) {
  MS_DISPATCH(sigmoid_gate_backward(dy, x, gate, n, dx, dgate));
}
template void sigmoid_gate_backward(const float*, const float*, const float*, int64_t, float*, float*);
template void sigmoid_gate_backward(const bf16*, const bf16*, const bf16*, int64_t, bf16*, bf16*);
template void sigmoid_gate_backward(const fp16*, const fp16*, const fp16*, int64_t, fp16*, fp16*);

void softcap(const float* x, int64_t n, float cap, float* y) { MS_DISPATCH(softcap(x, n, cap, y)); }

void softcap_backward(const float* dy, const float* y, int64_t n, float cap, float* dx) {
  MS_DISPATCH(softcap_backward(dy, y, n, cap, dx));
}

void exp(const float* x, int64_t n, float* y) { MS_DISPATCH(exp_span(x, n, y)); }

}  // namespace ms::kernels
