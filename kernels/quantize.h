// Converts rows between real numbers and the integers of quantised layers; n elements each, arithmetic in fp32.
#pragma once

#include <cstdint>

namespace ms::kernels {

// y[i] = (sums[i] + bias[i]) * scale[i] * factor. bias may be null; sums[i] + bias[i] must fit 32 bits.
void dequantize_sums(const int32_t* sums, const int32_t* bias, const float* scale, float factor, int64_t n, float* y);

// y[i] = (x[i] + offset[i]) * scale[i]. offset: may be null.
void dequantize(const int8_t* x, const float* scale, const float* offset, int64_t n, float* y);

// y[i] = number i of n 4-bit numbers in [-8, 7], two per byte, the lower half first. n must be even.
void unpack_int4(const uint8_t* x, int64_t n, int8_t* y);

// y[i] = x[i] * scale[i] + offset[i], rounded to the nearest integer (ties to even), clamped to [-128, 127]; NaN
// becomes -128. scale and offset may be null, meaning 1 and 0.
void quantize(const float* x, const float* scale, const float* offset, int64_t n, int8_t* y);

}  // namespace ms::kernels
