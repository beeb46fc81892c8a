#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/forced_isa.h"
#include "tests/reference/cross_entropy.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::Array;
using reference::kFp32;

TEST(CrossEntropy, LossAndGradientAgreeWithTheDefinition) {
  for (const int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 33, 127, 4097, 9001}) {
    test::RandomValues random(static_cast<uint64_t>(n));
    const auto logits = random.make(n, 20);
    const Array logits64 = reference::to_double(logits);
    const auto label = static_cast<size_t>(n / 2);
    const float max = row_max(logits.data(), n);
    EXPECT_EQ(max, *std::max_element(logits.begin(), logits.end()));
    const float sum = row_sum_exp(logits.data(), n, max);
    const double loss = std::log(static_cast<double>(sum)) + max - logits[label];
    // exp within 4 roundoffs, the rounding of its argument (at most 40), then the sum.
    const double relative = (46 + std::min<double>(static_cast<double>(n), 4096)) * kFp32;
    EXPECT_NEAR(loss, reference::cross_entropy(logits64, label), relative) << n;

    auto gradient = logits;
    constexpr float kScale = 0.5F;
    row_cross_entropy_backward(gradient.data(), n, max, sum, static_cast<int64_t>(label), kScale);
    const double denominator = std::exp(reference::cross_entropy(logits64, 0) + logits64[0]);
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double want = kScale * (std::exp(logits64[i]) / denominator - (i == label ? 1 : 0));
      ASSERT_NEAR(gradient[i], want, 2 * relative * kScale) << n << " at " << i;
    }
  }
}

TEST(CrossEntropy, GradientAgreesWithCentralDifferences) {
  constexpr int64_t kN = 19;
  test::RandomValues random;
  auto logits = random.make(kN, 3);
  const Array want = reference::numeric_gradient([](const Array& v) { return reference::cross_entropy(v, 4); },
                                                 reference::to_double(logits));
  const float max = row_max(logits.data(), kN), sum = row_sum_exp(logits.data(), kN, max);
  row_cross_entropy_backward(logits.data(), kN, max, sum, 4, 1.0F);
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], want[i], 30 * kFp32) << i;
}

TEST(CrossEntropy, EmptySliceAndLabelsOfOtherRanks) {
  EXPECT_EQ(row_max(nullptr, 0), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(row_sum_exp(nullptr, 0, 3.0F), 0.0F);
  std::vector<float> logits = {0.0F, 0.0F};
  row_cross_entropy_backward(logits.data(), 2, 0.0F, 2.0F, -1, 1.0F);
  row_cross_entropy_backward(logits.data(), 2, 0.5F, 2.0F, 2, 1.0F);
  EXPECT_EQ(logits, (std::vector<float>{0.5F, 0.5F}));
}

// A masked token contributes nothing, and neither does one whose share is below the normal numbers.
TEST(CrossEntropy, LogitsFarBelowTheMaximumContributeNothing) {
  for (const float low : {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::lowest(), -200.0F}) {
    for (const int64_t n : {2, 17, 40}) {
      std::vector<float> logits(static_cast<size_t>(n), low);
      logits[1] = 3.0F;
      EXPECT_NEAR(row_sum_exp(logits.data(), n, 3.0F), 1, 3e-7) << low << " " << n;
      row_cross_entropy_backward(logits.data(), n, 3.0F, 1.0F, -1, 1.0F);
      for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(logits[static_cast<size_t>(i)], i == 1 ? 1 : 0, i == 1 ? 3e-7 : 0);
    }
  }
}

TEST(CrossEntropy, NanPropagates) {
  for (const int64_t n : {1, 5, 40}) {
    for (int64_t at = 0; at < n; ++at) {
      std::vector<float> logits(static_cast<size_t>(n), 1.0F);
      logits[static_cast<size_t>(at)] = std::nanf("");
      EXPECT_TRUE(std::isnan(row_sum_exp(logits.data(), n, 1.0F))) << at << " of " << n;
    }
  }
}

}  // namespace
}  // namespace ms::kernels
