#include "kernels/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/kernels/forced_isa.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

constexpr int64_t kPatterns = 65536;

// The value of a binary16 bit pattern, from IEEE 754-2019 table 3.5.
double half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST(Convert, EveryFp16RoundTrips) {
  std::vector<fp16> source(kPatterns), back(kPatterns);
  for (size_t i = 0; i < source.size(); ++i) source[i].bits = static_cast<uint16_t>(i);
  std::vector<float> values(kPatterns);
  convert(source.data(), values.data(), kPatterns);
  convert(values.data(), back.data(), kPatterns);
  for (size_t i = 0; i < source.size(); ++i) {
    const double want = half_value(source[i].bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(values[i])) << i;
      ASSERT_EQ(back[i].bits, source[i].bits | 0x200) << i;  // quiet, payload kept
    } else {
      ASSERT_EQ(values[i], want) << i;
      ASSERT_EQ(back[i].bits, source[i].bits) << i;
    }
  }
}

TEST(Convert, Fp16RoundsToNearestEven) {
  // Between each pair of neighbours: the midpoint rounds to the even one, the next floats beside it to the nearer one.
  std::vector<float> values;
  std::vector<uint16_t> want;
  for (uint32_t i = 0; i < 0x7bff; ++i) {
    const auto low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
    const auto middle = static_cast<float>((half_value(low) + half_value(high)) / 2);
    values.insert(values.end(), {std::nextafter(middle, 0.0F), middle, std::nextafter(middle, 1e9F)});
    want.insert(want.end(), {low, i % 2 == 0 ? low : high, high});
  }
  values.insert(values.end(), {65519.996F, 65520.0F, 1e30F, -1e30F, -65520.0F});
  want.insert(want.end(), {0x7bff, 0x7c00, 0x7c00, 0xfc00, 0xfc00});
  std::vector<fp16> result(values.size());
  convert(values.data(), result.data(), static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(result[i].bits, want[i]) << values[i];
}

TEST(Convert, EveryBf16RoundTrips) {
  std::vector<bf16> source(kPatterns), back(kPatterns);
  for (size_t i = 0; i < source.size(); ++i) source[i].bits = static_cast<uint16_t>(i);
  std::vector<float> values(kPatterns);
  convert(source.data(), values.data(), kPatterns);
  convert(values.data(), back.data(), kPatterns);
  for (size_t i = 0; i < source.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), static_cast<uint32_t>(i) << 16);
    ASSERT_EQ(back[i].bits, std::isnan(values[i]) ? i | 0x40 : i);
  }
}

TEST(Convert, Bf16RoundsToNearestEven) {
  std::vector<float> values;
  std::vector<uint16_t> want;
  for (uint32_t i = 0; i < 0x7f80; i += 3) {
    for (const uint32_t low : {0x0u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>((i << 16) | low));
      const bool up = low > 0x8000u || (low == 0x8000u && i % 2 == 1);
      want.push_back(static_cast<uint16_t>(i + (up ? 1 : 0)));
    }
  }
  std::vector<bf16> result(values.size());
  convert(values.data(), result.data(), static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(result[i].bits, want[i]) << values[i];
}

TEST(Convert, NarrowTypesConvertThroughFp32) {
  for (const int64_t n : {0, 1, 7, 8, 9, 17, 1009}) {
    test::RandomValues random(static_cast<uint64_t>(n));
    const auto source = random.make<bf16>(n);
    std::vector<fp16> half(source.size()), direct(source.size());
    std::vector<bf16> back(source.size());
    std::vector<float> wide(source.size());
    convert(source.data(), half.data(), n);
    convert(source.data(), wide.data(), n);
    convert(wide.data(), direct.data(), n);
    convert(half.data(), back.data(), n);
    for (size_t i = 0; i < source.size(); ++i) {
      ASSERT_EQ(half[i].bits, direct[i].bits);
      if (std::abs(wide[i]) > 1e-3F) {
        ASSERT_EQ(back[i], source[i]);  // 8 mantissa bits fit in 11
      }
    }
  }
}

}  // namespace
}  // namespace ms::kernels
