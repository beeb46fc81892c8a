#include "kernels/rope.h"

#define MS_KERNEL_BODY "kernels/impl/rope.inl"
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

}  // namespace ms::kernels
