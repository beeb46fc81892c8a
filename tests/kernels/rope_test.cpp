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

TYPED_TEST(Rope, IsAProductOfComplexNumbers) {
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

TYPED_TEST(Rope, InverseUndoes) {
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

}  // namespace
}  // namespace ms::kernels
