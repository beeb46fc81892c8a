#include "kernels/rows.h"

#include <cstddef>

#define MS_KERNEL_BODY "kernels/impl/rows.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

void copy_row(const void* row, int64_t bytes, void* target, Stores stores) {
  MS_DISPATCH(copy_row(static_cast<const std::byte*>(row), bytes, static_cast<std::byte*>(target), stores));
}

void copy_piece(const void* piece, int64_t bytes, void* target) {
  MS_DISPATCH(copy_piece(static_cast<const std::byte*>(piece), bytes, static_cast<std::byte*>(target)));
}

void store_fence() { MS_DISPATCH(store_fence()); }

template <class T>
void weighted_row_sum(const T* const* rows, const float* weights, int64_t count, int64_t h, T* y, Stores stores,
                      const T* const* ahead) {
  MS_DISPATCH(weighted_row_sum(rows, weights, count, h, y, stores, ahead));
}
template void weighted_row_sum(const float* const*, const float*, int64_t, int64_t, float*, Stores,
                               const float* const*);
template void weighted_row_sum(const bf16* const*, const float*, int64_t, int64_t, bf16*, Stores, const bf16* const*);
template void weighted_row_sum(const fp16* const*, const float*, int64_t, int64_t, fp16*, Stores, const fp16* const*);

template <class T>
float weighted_row_sum_backward(const T* dy, const T* row, float weight, int64_t h, T* drow, Stores stores) {
  MS_DISPATCH(weighted_row_sum_backward(dy, row, weight, h, drow, stores));
}
template float weighted_row_sum_backward(const float*, const float*, float, int64_t, float*, Stores);
template float weighted_row_sum_backward(const bf16*, const bf16*, float, int64_t, bf16*, Stores);
template float weighted_row_sum_backward(const fp16*, const fp16*, float, int64_t, fp16*, Stores);

}  // namespace ms::kernels
