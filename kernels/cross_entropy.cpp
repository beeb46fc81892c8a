#include "kernels/cross_entropy.h"

#define MS_KERNEL_BODY "kernels/impl/cross_entropy.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

float row_max(const float* logits, int64_t n) { MS_DISPATCH(row_max(logits, n)); }

float row_sum_exp(const float* logits, int64_t n, float max) { MS_DISPATCH(row_sum_exp(logits, n, max)); }

void row_cross_entropy_backward(float* logits, int64_t n, float max, float sum_exp, int64_t label, float scale) {
  MS_DISPATCH(row_cross_entropy_backward(logits, n, max, sum_exp, label, scale));
}

}  // namespace ms::kernels
