#include "kernels/elementwise.h"

#define MS_KERNEL_BODY "kernels/impl/elementwise.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

template <class T>
void add(const T* a, const T* b, int64_t n, T* out, Stores stores) {
  MS_DISPATCH(add(a, b, n, out, stores));
}
template void add(const float*, const float*, int64_t, float*, Stores);
template void add(const bf16*, const bf16*, int64_t, bf16*, Stores);
template void add(const fp16*, const fp16*, int64_t, fp16*, Stores);

template <class T>
void accumulate(float* sum, const T* x, int64_t n) {
  MS_DISPATCH(accumulate(sum, x, n));
}
template void accumulate(float*, const float*, int64_t);
template void accumulate(float*, const bf16*, int64_t);
template void accumulate(float*, const fp16*, int64_t);

template <class T>
void scale(T* x, int64_t n, float factor) {
  MS_DISPATCH(scale(x, n, factor));
}
template void scale(float*, int64_t, float);
template void scale(bf16*, int64_t, float);
template void scale(fp16*, int64_t, float);

}  // namespace ms::kernels
