#include "kernels/fp32_halves.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/kernels/forced_isa.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

struct Planes {
  explicit Planes(size_t n) : high(n), low(n), marks(n) {}
  Fp32Halves halves() { return {high.data(), low.data(), marks.data()}; }

  std::vector<bf16> high;
  std::vector<uint16_t> low;
  std::vector<float> marks;
};

// Splits and joins 65536 numbers with the same lower half.
void expect_back(uint32_t lower, Planes& planes, std::vector<float>& values, std::vector<float>& back) {
  for (uint32_t upper = 0; upper < 0x10000U; ++upper) values[upper] = std::bit_cast<float>(upper << 16 | lower);
  for (size_t i = 0; i < planes.marks.size(); ++i) planes.marks[i] = static_cast<float>(i % 7);
  split_fp32(values.data(), 0x10000, planes.halves());
  for (uint32_t upper = 0; upper < 0x10000U; ++upper) {
    ASSERT_EQ(planes.high[upper].bits, bf16::round(values[upper])) << upper << " " << lower;
    const bool marked = lower == 0x8000U && upper % 2 == 0 && !std::isnan(values[upper]);
    ASSERT_EQ(std::signbit(planes.marks[upper]), marked) << upper << " " << lower;
    ASSERT_EQ(std::abs(planes.marks[upper]), static_cast<float>(upper % 7));
  }
  join_fp32(planes.halves(), 0x10000, back.data());
  for (uint32_t upper = 0; upper < 0x10000U; ++upper) {
    ASSERT_FALSE(std::signbit(planes.marks[upper]));
    if (std::isnan(values[upper])) {
      ASSERT_TRUE(std::isnan(back[upper])) << upper << " " << lower;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(back[upper]), upper << 16 | lower);
  }
}

// 10^8 of the 2^32 bit patterns: every upper half with every 43rd lower half, and the lower halves around which
// rounding changes.
TEST(Fp32Halves, RoundTripIsBitwiseWithNearestBf16) {
  Planes planes(0x10000);
  std::vector<float> values(0x10000), back(0x10000);
  for (const uint32_t lower : {1U, 0x7ffeU, 0x7fffU, 0x8000U, 0x8001U, 0xfffeU, 0xffffU}) {
    expect_back(lower, planes, values, back);
  }
  for (uint32_t lower = 0; lower < 0x10000U; lower += 43) expect_back(lower, planes, values, back);
}

TEST(Fp32Halves, AnyLengthWritesOnlyItsElements) {
  for (const int64_t n : {0, 1, 7, 8, 9, 15, 16, 17, 33, 1009}) {
    test::RandomValues random(static_cast<uint64_t>(n));
    const auto values = random.make(n + 1);
    Planes planes(values.size());
    planes.low.back() = 0x1234, planes.high.back().bits = 0x5678, planes.marks.back() = -1;
    std::vector<float> back(values.size(), 5.0F);
    split_fp32(values.data(), n, planes.halves());
    join_fp32(planes.halves(), n, back.data());
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) ASSERT_EQ(back[i], values[i]) << n << " at " << i;
    EXPECT_EQ(planes.low.back(), 0x1234);
    EXPECT_EQ(planes.high.back().bits, 0x5678);
    EXPECT_EQ(planes.marks.back(), -1);
    EXPECT_EQ(back.back(), 5.0F);
  }
}

}  // namespace
}  // namespace ms::kernels
