#include "kernels/dropout_add.h"

#include <gtest/gtest.h>

#include "kernels/bf16.h"
#include "tests/kernels/forced_isa.h"
#include "tests/reference/array.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::kFp32;
using reference::roundoff;

template <class X, class Stream>
struct Pair {
  using T = X;
  using Z = Stream;
};
template <class P>
class DropoutAdd : public ::testing::Test {};
using Types =
    ::testing::Types<Pair<float, float>, Pair<bf16, bf16>, Pair<bf16, float>, Pair<fp16, fp16>, Pair<fp16, float>>;
TYPED_TEST_SUITE(DropoutAdd, Types);

TYPED_TEST(DropoutAdd, AgreesWithTheDefinitionForAnyOptionalOperands) {
  using T = typename TypeParam::T;
  using Z = typename TypeParam::Z;
  for (const int64_t h : {0, 1, 7, 8, 9, 15, 16, 17, 33, 127, 768}) {
    for (int there = 0; there < 8; ++there) {
      test::RandomValues random(static_cast<uint64_t>(h * 8 + there));
      const auto x = random.make<T>(h + 1), dx_before = random.make<T>(h + 2);
      const auto residual = random.make<Z>(h + 1);
      const auto layerscale = random.make(h + 1), factors = random.make(h + 1), dz = random.make(h + 1);
      const float* scale = (there & 1) != 0 ? layerscale.data() + 1 : nullptr;
      const float* factor = (there & 2) != 0 ? factors.data() + 1 : nullptr;
      const Z* past = (there & 4) != 0 ? residual.data() + 1 : nullptr;
      const float rowscale = (there & 1) != 0 ? 0.7F : 1.0F;
      std::vector<Z> z(static_cast<size_t>(h + 2), Z(9.0F));
      auto dx = dx_before;
      auto dlayerscale = random.make(h + 2);
      const auto sums_before = dlayerscale;
      dropout_add(x.data() + 1, rowscale, scale, factor, past, h, z.data() + 1);
      const float of_row = dropout_add_backward(dz.data() + 1, x.data() + 1, rowscale, scale, factor, h, dx.data() + 1,
                                                dlayerscale.data() + 1);
      double want_of_row = 0, magnitude = 0;
      for (size_t i = 1; i <= static_cast<size_t>(h); ++i) {
        const double s = scale != nullptr ? layerscale[i] : 1, f = factor != nullptr ? factors[i] : 1;
        const double value = to_float(x[i]),
                     want = value * rowscale * s * f + (past != nullptr ? to_float(residual[i]) : 0);
        ASSERT_NEAR(to_float(z[i]), want, 5 * kFp32 + roundoff<Z>() * std::abs(want)) << h << " at " << i;
        const double want_dx = dz[i] * f * rowscale * s;
        ASSERT_NEAR(to_float(dx[i]), want_dx, 5 * kFp32 + roundoff<T>() * std::abs(want_dx)) << h << " at " << i;
        ASSERT_NEAR(dlayerscale[i], sums_before[i] + dz[i] * f * value * rowscale, 6 * kFp32) << h << " at " << i;
        want_of_row += dz[i] * f * value * s, magnitude += std::abs(dz[i] * f * value * s);
      }
      EXPECT_NEAR(of_row, want_of_row, static_cast<double>(h + 4) * kFp32 * magnitude) << h;
      EXPECT_EQ(to_float(z.back()), 9.0F);
      EXPECT_EQ(dx.back(), dx_before.back());
      EXPECT_EQ(dlayerscale.back(), sums_before.back());
    }
  }
}

// The result stored past the caches equals the cached one, for an aligned row, a row with a tail and an unaligned row.
TYPED_TEST(DropoutAdd, NonTemporalCopyEqualsTheResult) {
  using T = typename TypeParam::T;
  using Z = typename TypeParam::Z;
  for (const int64_t h : {1, 15, 16, 17, 64, 127, 768}) {
    for (const size_t off : {0, 1}) {
      const auto x = test::RandomValues(1).make<T>(h);
      const auto residual = test::RandomValues(2).make<Z>(h);
      std::vector<Z> memory(static_cast<size_t>(h) + 128, Z(9.0F)), z(static_cast<size_t>(h));
      Z* past = memory.data();
      while (reinterpret_cast<uintptr_t>(past) % 64 != 0) ++past;
      past += off;
      dropout_add<T, Z>(x.data(), 0.5F, nullptr, nullptr, residual.data(), h, z.data(), past);
      for (size_t i = 0; i < z.size(); ++i) ASSERT_EQ(to_float(z[i]), to_float(past[i])) << h << " at " << i;
      EXPECT_EQ(to_float(past[h]), 9.0F) << "written beyond the row";
    }
  }
}

// With only a residual it is the sum, rounded once; also in place.
TYPED_TEST(DropoutAdd, WithoutFactorsAddsTheResidual) {
  using T = typename TypeParam::T;
  using Z = typename TypeParam::Z;
  const auto x = test::RandomValues(1).make<T>(100);
  auto z = test::RandomValues(2).make<Z>(100);
  const auto before = z;
  dropout_add<T, Z>(x.data(), 1.0F, nullptr, nullptr, z.data(), 100, z.data());
  for (size_t i = 0; i < z.size(); ++i) ASSERT_EQ(to_float(z[i]), to_float(Z(to_float(x[i]) + to_float(before[i]))));
}

TEST(DropoutAddSpecial, InfAndNanPropagate) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {inf, std::nanf(""), 1}, residual = {1, 2, -inf};
  float z[3];
  dropout_add<float, float>(x.data(), 1.0F, nullptr, nullptr, residual.data(), 3, z);
  EXPECT_TRUE(z[0] == inf && std::isnan(z[1]) && z[2] == -inf);
}

}  // namespace
}  // namespace ms::kernels
