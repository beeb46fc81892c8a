#include "kernels/rope.h"

#define MS_KERNEL_BODY "kernels/impl/rope.inl"
#include "kernels/impl/avx512_bf16.h"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

template <class T>
void rope(RopePairs pairs, T* x, int64_t heads, int64_t d, int64_t dim, const float* cos, const float* sin,
          bool inverse) {
  MS_DISPATCH(rope(pairs, x, heads, d, dim, cos, sin, inverse));
}
template void rope(RopePairs, float*, int64_t, int64_t, int64_t, const float*, const float*, bool);
template void rope(RopePairs, bf16*, int64_t, int64_t, int64_t, const float*, const float*, bool);
template void rope(RopePairs, fp16*, int64_t, int64_t, int64_t, const float*, const float*, bool);

template <class T>
void rotate(RopePairs pairs, const T* x, const T* cos, const T* sin, int64_t d, T* y) {
  MS_DISPATCH(rotate(pairs, x, cos, sin, d, y));
}
template void rotate(RopePairs, const float*, const float*, const float*, int64_t, float*);
template void rotate(RopePairs, const bf16*, const bf16*, const bf16*, int64_t, bf16*);
template void rotate(RopePairs, const fp16*, const fp16*, const fp16*, int64_t, fp16*);

template <class T>
void rotate_backward(RopePairs pairs, const T* dy, const T* cos, const T* sin, int64_t d, T* dx) {
  MS_DISPATCH(rotate_backward(pairs, dy, cos, sin, d, dx));
}
template void rotate_backward(RopePairs, const float*, const float*, const float*, int64_t, float*);
template void rotate_backward(RopePairs, const bf16*, const bf16*, const bf16*, int64_t, bf16*);
template void rotate_backward(RopePairs, const fp16*, const fp16*, const fp16*, int64_t, fp16*);

template <class T>
void rotate_backward_tables(RopePairs pairs, const T* dy, const T* x, int64_t d, float* dcos, float* dsin) {
  MS_DISPATCH(rotate_backward_tables(pairs, dy, x, d, dcos, dsin));
}
template void rotate_backward_tables(RopePairs, const float*, const float*, int64_t, float*, float*);
template void rotate_backward_tables(RopePairs, const bf16*, const bf16*, int64_t, float*, float*);
template void rotate_backward_tables(RopePairs, const fp16*, const fp16*, int64_t, float*, float*);

}  // namespace ms::kernels
