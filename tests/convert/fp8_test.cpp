#include "convert/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ms::convert {
namespace {

// By definition: sign, exponent with bias 7, three mantissa bits; no infinities.
double by_definition(int bits) {
  const int sign = bits & 0x80 ? -1 : 1, exponent = bits >> 3 & 15, mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::pow(2.0, -6) * (mantissa / 8.0);
  return sign * std::pow(2.0, exponent - 7) * (1 + mantissa / 8.0);
}

TEST(Fp8, EveryBitPatternMatchesTheDefinition) {
  for (int bits = 0; bits < 256; ++bits) {
    const double wanted = by_definition(bits), seen = e4m3_value(static_cast<uint8_t>(bits));
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(seen)) << bits;
    } else {
      EXPECT_EQ(seen, wanted) << bits;
      EXPECT_EQ(std::signbit(seen), std::signbit(wanted)) << bits;
    }
  }
  EXPECT_EQ(e4m3_value(0x7e), 448.0F) << "the largest";
}

TEST(Fp8, RowIsScaledByBlockAndRoundedOnce) {
  constexpr int64_t kBlock = 5, kColumns = 23;
  const std::vector<float> scales = {0.5F, 3.0F, 1e-3F, 7.25F, 0.3333F};
  for (int64_t first = 0; first < kColumns; ++first) {
    for (int64_t count = 0; first + count <= kColumns; ++count) {
      std::vector<std::byte> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<std::byte>((first + i) * 11 % 126));
      std::vector<kernels::bf16> out(static_cast<size_t>(count));
      dequantize_row(values, first, scales, kBlock, out.data());
      for (int64_t i = 0; i < count; ++i) {
        const float value = static_cast<float>(by_definition(static_cast<int>(values[static_cast<size_t>(i)])));
        const float scale = scales[static_cast<size_t>((first + i) / kBlock)];
        EXPECT_EQ(out[static_cast<size_t>(i)], kernels::bf16(value * scale)) << first << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace ms::convert
