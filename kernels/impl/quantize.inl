// Body of quantize.h: loops that the compiler vectorises for the region's target.

inline void dequantize_sums(const int32_t* sums, const int32_t* bias, const float* scale, float factor, int64_t n,
                            float* y) {
  if (bias == nullptr) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(sums[i]) * scale[i] * factor;
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(sums[i] + bias[i]) * scale[i] * factor;
  }
}

inline void dequantize(const int8_t* x, const float* scale, const float* offset, int64_t n, float* y) {
  if (offset == nullptr) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]) * scale[i];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = (static_cast<float>(x[i]) + offset[i]) * scale[i];
  }
}

inline void unpack_int4(const uint8_t* x, int64_t n, int8_t* y) {
  for (int64_t i = 0; i < n / 2; ++i) {  // bit 3 is the sign
    y[2 * i] = static_cast<int8_t>(((x[i] & 15) ^ 8) - 8);
    y[2 * i + 1] = static_cast<int8_t>(((x[i] >> 4) ^ 8) - 8);
  }
}

inline void quantize(const float* x, const float* scale, const float* offset, int64_t n, int8_t* y) {
  for (int64_t i = 0; i < n; ++i) {
    float value = x[i] * (scale != nullptr ? scale[i] : 1.0F) + (offset != nullptr ? offset[i] : 0.0F);
    value = value > -128.0F ? value : -128.0F;
    value = value < 127.0F ? value : 127.0F;
    // Adding 1.5 * 2^23 shifts the fraction out of the mantissa, rounding to even.
    const auto shifted = std::bit_cast<int32_t>(value + 12582912.0F);
    y[i] = static_cast<int8_t>(shifted - std::bit_cast<int32_t>(12582912.0F));
  }
}
