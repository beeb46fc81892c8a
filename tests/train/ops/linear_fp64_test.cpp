#include "train/ops/linear_fp64.h"

#include <gtest/gtest.h>

#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::Array;

template <class T>
class LinearFp64 : public ::testing::Test {};
TYPED_TEST_SUITE(LinearFp64, StorageTypes);

// Sums of fp64 differ by their order in bits that fp32 does not have, but for halves between two of its numbers.
void expect_rounded_once(float seen, double want, double scale) {
  ASSERT_NEAR(seen, want, 0.50001 * std::abs(want) * 1.2e-7 + 1e-13 * scale);
}

TYPED_TEST(LinearFp64, EachSumIsRoundedOnce) {
  for (const int64_t in : {1, 3, 4, 61}) {
    constexpr int64_t kRows = 7, kOut = 5;
    Ops ops(2);
    const auto x = ops.random<TypeParam>({kRows, in}, 1), weight = ops.random<TypeParam>({kOut, in}, 2);
    const auto dy = ops.random<float>({kRows, kOut}, 3);
    const Array a = array(x), w = array(weight), g = array(dy);
    const auto width = static_cast<size_t>(in);
    const core::Tensor y = linear_fp64(ops.context, x, weight);
    const core::Tensor dx = linear_fp64_dgrad(ops.context, dy, weight);
    EXPECT_EQ(dx.dtype(), x.dtype());
    const Array gradients = array(dx);
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t o = 0; o < kOut; ++o) {
        double sum = 0;
        for (size_t e = 0; e < width; ++e) sum += a[r * width + e] * w[o * width + e];
        expect_rounded_once(y.data<float>()[r * kOut + o], sum, 100);
      }
      for (size_t e = 0; e < width; ++e) {
        double sum = 0;
        for (size_t o = 0; o < kOut; ++o) sum += g[r * kOut + o] * w[o * width + e];
        const double eps = x.dtype() == core::DType::kFp32 ? 1e-7 : x.dtype() == core::DType::kFp16 ? 5e-4 : 4e-3;
        ASSERT_NEAR(gradients[r * width + e], sum, eps * std::abs(sum) + 1e-7);
      }
    }
    auto main_grad = ops.random<float>({kOut, in}, 4);
    const Array before = array(main_grad);
    linear_fp64_wgrad(ops.context, x, dy, main_grad);
    for (size_t o = 0; o < kOut; ++o) {
      for (size_t e = 0; e < width; ++e) {
        double sum = 0;
        for (size_t r = 0; r < kRows; ++r) sum += g[r * kOut + o] * a[r * width + e];
        const double want = before[o * width + e] + static_cast<float>(sum);
        ASSERT_NEAR(main_grad.data<float>()[o * width + e], want, 1.3e-7 * (std::abs(want) + std::abs(sum)) + 1e-13);
      }
    }
  }
}

}  // namespace
}  // namespace ms::ops
