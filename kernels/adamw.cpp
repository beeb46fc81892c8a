#include "kernels/adamw.h"

#define MS_KERNEL_BODY "kernels/impl/adamw.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

void adamw(float* p, float* grad, float* m, float* v, bf16* param, float* ema, int64_t n, const AdamwScalars& scalars) {
  MS_DISPATCH(adamw(p, grad, m, v, param, ema, n, scalars));
}

void adamw(const Fp32Halves& p, float* grad, float* m, int64_t n, const AdamwScalars& scalars) {
  MS_DISPATCH(adamw(p, grad, m, n, scalars));
}

double sum_of_squares(const float* values, int64_t n) { MS_DISPATCH(sum_of_squares(values, n)); }

}  // namespace ms::kernels
