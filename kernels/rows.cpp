#include "kernels/rows.h"

#define MS_KERNEL_BODY "kernels/impl/rows.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

template <class T>
void weighted_row_sum(const T* const* rows, const float* weights, int64_t count, int64_t h, T* y) {
  MS_DISPATCH(weighted_row_sum(rows, weights, count, h, y));
}
template void weighted_row_sum(const float* const*, const float*, int64_t, int64_t, float*);
template void weighted_row_sum(const bf16* const*, const float*, int64_t, int64_t, bf16*);
template void weighted_row_sum(const fp16* const*, const float*, int64_t, int64_t, fp16*);

template <class T>
float weighted_row_sum_backward(const T* dy, const T* row, float weight, int64_t h, T* drow) {
  MS_DISPATCH(weighted_row_sum_backward(dy, row, weight, h, drow));
}
template float weighted_row_sum_backward(const float*, const float*, float, int64_t, float*);
template float weighted_row_sum_backward(const bf16*, const bf16*, float, int64_t, bf16*);
template float weighted_row_sum_backward(const fp16*, const fp16*, float, int64_t, fp16*);

}  // namespace ms::kernels
