#include "kernels/fp32_halves.h"

#define MS_KERNEL_BODY "kernels/impl/fp32_halves.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

void split_fp32(const float* values, int64_t n, const Fp32Halves& halves) {
  MS_DISPATCH(split_fp32(values, n, halves));
}

void join_fp32(const Fp32Halves& halves, int64_t n, float* values) { MS_DISPATCH(join_fp32(halves, n, values)); }

}  // namespace ms::kernels
