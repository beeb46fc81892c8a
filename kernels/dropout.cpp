#include "kernels/dropout.h"

#define MS_KERNEL_BODY "kernels/impl/dropout_row.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

void dropout_factors(const Dropout& dropout, int64_t sample, int64_t row, int64_t first_column, int64_t n,
                     float* factors) {
  MS_DISPATCH(fill_dropout_factors(dropout, sample, row, first_column, n, factors));
}

template <class T>
void dropout_row(const Dropout& dropout, int64_t sample, int64_t row, int64_t first_column, int64_t n, T* x) {
  MS_DISPATCH(dropout_row(dropout, sample, row, first_column, n, x));
}
template void dropout_row(const Dropout&, int64_t, int64_t, int64_t, int64_t, float*);
template void dropout_row(const Dropout&, int64_t, int64_t, int64_t, int64_t, bf16*);
template void dropout_row(const Dropout&, int64_t, int64_t, int64_t, int64_t, fp16*);

}  // namespace ms::kernels
