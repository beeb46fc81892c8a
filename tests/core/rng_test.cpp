#include "core/rng.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/philox.h"

namespace ms::core {
namespace {

TEST(Philox, MatchesPublishedTestVectors) {  // kat_vectors of Random123, philox4x32 10
  EXPECT_EQ(kernels::philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(kernels::philox4x32_10({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Rng, DependsOnlyOnSeedStreamAndIndex) {
  const Rng rng(1, "a");
  EXPECT_EQ(rng.bits(5), Rng(1, "a").bits(5));
  EXPECT_NE(rng.bits(5), rng.bits(6));
  EXPECT_NE(rng.bits(5), Rng(2, "a").bits(5));
  EXPECT_NE(rng.bits(5), Rng(1, "b").bits(5));
}

TEST(Rng, MomentsMatchTheDistributions) {
  const Rng rng(9, "moments");
  constexpr int kDraws = 200'000;
  double sum = 0, squares = 0, fourth = 0, uniform = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double x = rng.normal(i);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    const double u = rng.uniform(i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    uniform += u;
    ASSERT_LT(rng.below(i, 7), 7U);
  }
  const double five_sigma = 5 / std::sqrt(static_cast<double>(kDraws));
  EXPECT_NEAR(sum / kDraws, 0, five_sigma);
  EXPECT_NEAR(squares / kDraws, 1, five_sigma * std::sqrt(2.0));
  EXPECT_NEAR(fourth / kDraws, 3, five_sigma * std::sqrt(96.0));
  EXPECT_NEAR(uniform / kDraws, 0.5, five_sigma / std::sqrt(12.0));
}

}  // namespace
}  // namespace ms::core
