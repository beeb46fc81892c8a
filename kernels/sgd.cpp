#include "kernels/sgd.h"

#define MS_KERNEL_BODY "kernels/impl/sgd.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

void sgd(float* p, float* grad, float* m, bf16* param, int64_t n, const SgdScalars& scalars) {
  MS_DISPATCH(sgd(p, grad, m, param, n, scalars));
}

}  // namespace ms::kernels
