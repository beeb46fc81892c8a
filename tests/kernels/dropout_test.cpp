#include "kernels/dropout.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/philox.h"
#include "tests/kernels/forced_isa.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

std::vector<float> factors(const Dropout& dropout, int64_t sample, int64_t row, int64_t first, int64_t n) {
  std::vector<float> result(static_cast<size_t>(n), -1.0F);
  dropout_factors(dropout, sample, row, first, n, result.data());
  return result;
}

TEST(Dropout, IsPhiloxOfColumnRowAndSample) {
  const Dropout dropout{0.25F, 0x0123456789abcdefULL};
  const int64_t sample = (int64_t{3} << 32) + 5;
  const auto seen = factors(dropout, sample, 17, 400, 203);
  for (int64_t i = 0; i < 203; ++i) {
    const auto words = philox4x32_10({static_cast<uint32_t>((400 + i) / 4), 17, 5, 3}, {0x89abcdef, 0x01234567});
    const float want = words[static_cast<size_t>(i % 4)] < (1U << 30) ? 0.0F : 1.0F / 0.75F;
    ASSERT_EQ(seen[static_cast<size_t>(i)], want) << i;
  }
}

TEST(Dropout, DropsTheGivenShareAndKeepsTheMean) {
  for (const float probability : {0.01F, 0.1F, 0.5F, 0.9F}) {
    constexpr int64_t kCount = 200000;
    double zeros = 0, sum = 0;
    for (const float factor : factors({probability, 3}, 1, 2, 0, kCount)) zeros += factor == 0, sum += factor;
    const double deviation = std::sqrt(probability * (1 - probability) / kCount);
    EXPECT_NEAR(zeros / kCount, probability, 5 * deviation);
    EXPECT_NEAR(sum / kCount, 1, 5 * deviation / (1 - probability));
  }
}

TEST(Dropout, MaskDiffersAcrossKeysSamplesRowsAndColumns) {
  const auto base = factors({0.5F, 1}, 1, 1, 0, 256);
  EXPECT_NE(base, factors({0.5F, 2}, 1, 1, 0, 256));
  EXPECT_NE(base, factors({0.5F, 1}, 2, 1, 0, 256));
  EXPECT_NE(base, factors({0.5F, 1}, 1, 2, 0, 256));
  const auto tail = factors({0.5F, 1}, 1, 1, 128, 128);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), base.begin() + 128))
      << "a slice of a row equals that part of the row";
}

template <class T>
class DropoutRow : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(DropoutRow, Types);

TYPED_TEST(DropoutRow, MultipliesByTheFactors) {
  for (const int64_t n : {0, 1, 15, 16, 17, 1023, 1024, 1025, 2500}) {
    test::RandomValues random(static_cast<uint64_t>(n));
    auto x = random.make<TypeParam>(n);
    const auto before = x;
    dropout_row({0.3F, 9}, 4, 5, 8, n, x.data());
    const auto want = factors({0.3F, 9}, 4, 5, 8, n);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(to_float(x[i]), to_float(TypeParam(to_float(before[i]) * want[i]))) << "n " << n << " at " << i;
    }
  }
}

}  // namespace
}  // namespace ms::kernels
