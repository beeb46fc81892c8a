#include "kernels/rope.h"

#include <gtest/gtest.h>

#include "kernels/bf16.h"
#include "tests/kernels/forced_isa.h"
#include "tests/reference/rope.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::Array;
using reference::roundoff;

template <class T>
class Rope : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Rope, Types);

TYPED_TEST(Rope, EqualsComplexMultiplication) {
  const int64_t sizes[][2] = {{2, 2}, {14, 14}, {16, 16}, {18, 18}, {64, 64}, {64, 32}, {80, 20}, {128, 128}, {34, 30}};
  for (const auto& [d, dim] : sizes) {
    constexpr int64_t kHeads = 3;
    test::RandomValues random(static_cast<uint64_t>(d + dim));
    const auto x = random.make<TypeParam>(kHeads * d);
    const Array angles = reference::to_double(random.make(dim / 2, 100));
    std::vector<float> cos, sin;
    for (const double angle : angles) {
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
    for (const bool inverse : {false, true}) {
      for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbours}) {
        auto y = x;
        rope(pairs, y.data(), kHeads, d, dim, cos.data(), sin.data(), inverse);
        for (int64_t head = 0; head < kHeads; ++head) {
          Array turned = angles;
          for (double& angle : turned) angle = inverse ? -angle : angle;
          const auto begin = x.begin() + head * d;
          const Array want = reference::rope(reference::to_double(std::vector<TypeParam>(begin, begin + d)), dim,
                                             turned, pairs == RopePairs::kNeighbours);
          for (int64_t i = 0; i < d; ++i) {
            // cos, sin, two products and a sum, on values of at most 1.
            const double bound = 6 * roundoff<float>() + roundoff<TypeParam>() * std::abs(want[static_cast<size_t>(i)]);
            ASSERT_NEAR(to_float(y[static_cast<size_t>(head * d + i)]), want[static_cast<size_t>(i)], bound)
                << "d " << d << " dim " << dim << " at " << i;
          }
        }
      }
    }
  }
}

TYPED_TEST(Rope, InverseUndoesTheRotation) {
  test::RandomValues random;
  const auto x = random.make<TypeParam>(2 * 64);
  std::vector<float> cos(32), sin(32);
  for (size_t i = 0; i < 32; ++i) cos[i] = std::cos(static_cast<float>(i)), sin[i] = std::sin(static_cast<float>(i));
  auto y = x;
  rope(RopePairs::kHalves, y.data(), 2, 64, 64, cos.data(), sin.data(), false);
  rope(RopePairs::kHalves, y.data(), 2, 64, 64, cos.data(), sin.data(), true);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(to_float(y[i]), to_float(x[i]), 12 * roundoff<float>() + 3 * roundoff<TypeParam>()) << i;
  }
}

// Tables with one angle per element: y = x cos + R(x) sin, its transpose, and the gradients of the tables.
TYPED_TEST(Rope, RotateWithTablesOfAnyAngle) {
  for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbours}) {
    for (const int64_t d : {2, 14, 16, 18, 30, 32, 34, 62, 64, 66, 128}) {
      test::RandomValues random(static_cast<uint64_t>(d));
      const auto x = random.make<TypeParam>(d + 1), dy = random.make<TypeParam>(d + 1);
      const auto cos = random.make<TypeParam>(d + 1), sin = random.make<TypeParam>(d + 1);
      std::vector<TypeParam> y(static_cast<size_t>(d + 2), TypeParam(9.0F)), dx = y;
      std::vector<float> dcos(static_cast<size_t>(d + 2), 9), dsin = dcos;
      rotate(pairs, x.data() + 1, cos.data() + 1, sin.data() + 1, d, y.data() + 1);
      rotate_backward(pairs, dy.data() + 1, cos.data() + 1, sin.data() + 1, d, dx.data() + 1);
      rotate_backward_tables(pairs, dy.data() + 1, x.data() + 1, d, dcos.data() + 1, dsin.data() + 1);
      const auto at = [](const std::vector<TypeParam>& values, int64_t i) {
        return static_cast<double>(to_float(values[static_cast<size_t>(i + 1)]));
      };
      for (int64_t i = 0; i < d; ++i) {
        const bool first = pairs == RopePairs::kHalves ? i < d / 2 : i % 2 == 0;
        const int64_t step = pairs == RopePairs::kHalves ? d / 2 : 1, other = first ? i + step : i - step;
        const double sign = first ? -1 : 1;
        const double want = at(x, i) * at(cos, i) + sign * at(x, other) * at(sin, i);
        const double want_dx = at(dy, i) * at(cos, i) - sign * at(dy, other) * at(sin, other);
        const double bound = 4 * reference::kFp32 + reference::roundoff<TypeParam>();
        const auto to = static_cast<size_t>(i + 1);
        ASSERT_NEAR(to_float(y[to]), want, bound * 2) << d << " at " << i;
        ASSERT_NEAR(to_float(dx[to]), want_dx, bound * 2) << d << " at " << i;
        ASSERT_NEAR(dcos[to], 9 + at(dy, i) * at(x, i), 20 * reference::kFp32) << d << " at " << i;
        ASSERT_NEAR(dsin[to], 9 + sign * at(dy, i) * at(x, other), 20 * reference::kFp32) << d << " at " << i;
      }
      EXPECT_EQ(y.back(), TypeParam(9.0F));
      EXPECT_EQ(dx.back(), TypeParam(9.0F));
      EXPECT_TRUE(dcos.back() == 9 && dsin.back() == 9);
    }
  }
}

}  // namespace
}  // namespace ms::kernels
