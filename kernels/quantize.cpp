#include "kernels/quantize.h"

#define MS_KERNEL_BODY "kernels/impl/quantize.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

void dequantize_sums(const int32_t* sums, const int32_t* bias, const float* scale, float factor, int64_t n, float* y) {
  MS_DISPATCH(dequantize_sums(sums, bias, scale, factor, n, y));
}

void dequantize(const int8_t* x, const float* scale, const float* offset, int64_t n, float* y) {
  MS_DISPATCH(dequantize(x, scale, offset, n, y));
}

void unpack_int4(const uint8_t* x, int64_t n, int8_t* y) { MS_DISPATCH(unpack_int4(x, n, y)); }

void quantize(const float* x, const float* scale, const float* offset, int64_t n, int8_t* y) {
  MS_DISPATCH(quantize(x, scale, offset, n, y));
}

}  // namespace ms::kernels
