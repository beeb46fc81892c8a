#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/forced_isa.h"
#include "tests/reference/array.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::kFp32;

TEST(Quantize, QuantizeAndDequantizeAgreeWithTheDefinition) {
  for (const int64_t n : {0, 1, 7, 8, 9, 15, 16, 17, 33, 127, 1000}) {
    test::RandomValues random(static_cast<uint64_t>(n));
    const auto sums = random.integers(n + 1, -2000000000, 2000000000), bias = random.integers(n + 1, -100000, 100000);
    const auto scale = random.make(n + 1), offset = random.make(n + 1, 100), x = random.make(n + 1, 300);
    std::vector<float> y(static_cast<size_t>(n + 2), 7), z = y;
    std::vector<int8_t> q(static_cast<size_t>(n + 2), 7), plain = q;
    dequantize_sums(sums.data() + 1, bias.data() + 1, scale.data() + 1, 0.3F, n, y.data() + 1);
    quantize(x.data() + 1, scale.data() + 1, offset.data() + 1, n, q.data() + 1);
    quantize(x.data() + 1, nullptr, nullptr, n, plain.data() + 1);
    dequantize(q.data() + 1, scale.data() + 1, offset.data() + 1, n, z.data() + 1);
    for (size_t i = 1; i <= static_cast<size_t>(n); ++i) {
      const double sum = (static_cast<double>(sums[i]) + bias[i]) * scale[i] * static_cast<double>(0.3F);
      ASSERT_NEAR(y[i], sum, 4 * kFp32 * std::abs(sum)) << i;
      const double real = static_cast<double>(x[i]) * scale[i] + offset[i];
      ASSERT_LE(std::abs(q[i] - std::min(127.0, std::max(-128.0, real))), 0.5 + 400 * 4 * kFp32) << i;
      ASSERT_EQ(plain[i], std::nearbyint(std::min(127.0F, std::max(-128.0F, x[i])))) << i;
      const double back = (static_cast<double>(q[i]) + offset[i]) * scale[i];
      ASSERT_NEAR(z[i], back, 3 * kFp32 * (128 + 100)) << i;
    }
    EXPECT_TRUE(y.back() == 7 && z.back() == 7 && q.back() == 7) << "written beyond the row";
    if (n == 0) continue;
    dequantize_sums(sums.data() + 1, nullptr, scale.data() + 1, 1.0F, n, y.data());
    dequantize(q.data() + 1, scale.data() + 1, nullptr, n, z.data());
    EXPECT_FLOAT_EQ(y[0], static_cast<float>(sums[1]) * scale[1]);
    EXPECT_EQ(z[0], static_cast<float>(q[1]) * scale[1]);
  }
}

TEST(Quantize, UnpackInt4ReadsTheLowerHalfByteFirst) {
  for (const int64_t n : {0, 2, 14, 16, 18, 30, 62, 64, 66, 510, 512}) {
    std::vector<uint8_t> packed(static_cast<size_t>(n / 2 + 1));
    for (size_t i = 0; i < packed.size(); ++i)
      packed[i] = static_cast<uint8_t>(i * 101);  // every byte value, if n is large enough
    std::vector<int8_t> y(static_cast<size_t>(n + 2), 77);
    unpack_int4(packed.data() + 1, n, y.data() + 1);
    for (int64_t i = 0; i < n; ++i) {
      const int bits = packed[static_cast<size_t>(1 + i / 2)] >> (i % 2 == 0 ? 0 : 4) & 15;
      ASSERT_EQ(y[static_cast<size_t>(1 + i)], bits < 8 ? bits : bits - 16) << i;
    }
    EXPECT_TRUE(y.front() == 77 && y.back() == 77) << "written beyond the row";
  }
}

TEST(Quantize, RoundsTiesToEvenAndClamps) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.5F,    1.5F, 2.5F, -0.5F,         -1.5F, 126.5F, 127.5F,
                                -128.5F, inf,  -inf, std::nanf(""), -0.0F, 1e30F};
  const std::vector<int8_t> want = {0, 2, 2, 0, -2, 126, 127, -128, 127, -128, -128, 0, 127};
  std::vector<int8_t> q(x.size());
  quantize(x.data(), nullptr, nullptr, static_cast<int64_t>(x.size()), q.data());
  EXPECT_EQ(q, want);
}

}  // namespace
}  // namespace ms::kernels
