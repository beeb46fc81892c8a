#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/bf16.h"
#include "tests/kernels/forced_isa.h"
#include "tests/reference/swiglu.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::Array;
using reference::roundoff;

TEST(Exp, RelativeErrorOverTheWholeRange) {
  std::vector<float> x;
  for (float v = -87.3F; v < 88.72F; v += 1.0F / 512) x.push_back(v);
  for (float v = -0.01F; v < 0.01F; v += 1e-6F) x.push_back(v);
  x.push_back(88.7228F);
  std::vector<float> y(x.size());
  exp(x.data(), static_cast<int64_t>(x.size()), y.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(y[i] - want) / want);
  }
  EXPECT_LT(worst, 2e-7);
}

TEST(Exp, SpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0F, -kInf, kInf, 89.0F, 1e30F, -88.0F, -1e30F, std::nanf(""), -0.0F, 1.0F};
  std::vector<float> y(x.size());
  exp(x.data(), static_cast<int64_t>(x.size()), y.data());
  EXPECT_EQ(y[0], 1.0F);
  EXPECT_EQ(y[1], 0.0F);
  EXPECT_EQ(y[2], kInf);
  EXPECT_EQ(y[3], kInf);
  EXPECT_EQ(y[4], kInf);
  EXPECT_EQ(y[5], 0.0F);
  EXPECT_EQ(y[6], 0.0F);
  EXPECT_TRUE(std::isnan(y[7]));
  EXPECT_EQ(y[8], 1.0F);
}

template <class T>
class Swiglu : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Swiglu, Types);

TYPED_TEST(Swiglu, AgreesWithTheDefinitionAndCentralDifferences) {
  for (const int64_t f : {1, 7, 8, 9, 16, 17, 53}) {
    constexpr int64_t kRows = 3;
    test::RandomValues random(static_cast<uint64_t>(f));
    const auto x = random.make<TypeParam>(kRows * 2 * f, 6), dy = random.make<TypeParam>(kRows * f);
    std::vector<TypeParam> y(dy.size()), dx(x.size());
    swiglu(x.data(), kRows, f, y.data());
    swiglu_backward(dy.data(), x.data(), kRows, f, dx.data());
    const Array x64 = reference::to_double(x), dy64 = reference::to_double(dy);
    const Array want = reference::swiglu(x64, f);
    for (size_t i = 0; i < want.size(); ++i) {
      // exp to 4 roundoffs, a sum, a division, two products.
      const double bound = (12 * roundoff<float>() + roundoff<TypeParam>()) * std::abs(want[i]);
      ASSERT_NEAR(to_float(y[i]), want[i], bound + 1e-30) << "f " << f << " at " << i;
    }
    const Array gradient =
        reference::numeric_gradient([&](const Array& v) { return reference::dot(reference::swiglu(v, f), dy64); }, x64);
    for (size_t i = 0; i < gradient.size(); ++i) {
      // 1 + gate * (1 - s) cancels near gate = -1.28: its terms are at most 7, times |dy up| <= 6.
      const double bound = 42 * 12 * roundoff<float>() + roundoff<TypeParam>() * std::abs(gradient[i]);
      ASSERT_NEAR(to_float(dx[i]), gradient[i], bound) << "f " << f << " at " << i;
    }
  }
}

TYPED_TEST(Swiglu, LargeInputsStayFinite) {
  const std::vector<float> values = {-1e4F, -200, -88.5F, 88.5F, 200, 1e4F};
  std::vector<TypeParam> x, dy(values.size(), TypeParam(1.0F)), y(values.size()), dx(2 * values.size());
  for (const float v : values) x.push_back(TypeParam(v));
  for (size_t i = 0; i < values.size(); ++i) x.push_back(TypeParam(2.0F));
  const auto f = static_cast<int64_t>(values.size());
  swiglu(x.data(), 1, f, y.data());
  swiglu_backward(dy.data(), x.data(), 1, f, dx.data());
  for (size_t i = 0; i < values.size(); ++i) {
    const double gate = to_float(x[i]), want = gate < 0 ? 0 : 2 * gate;
    EXPECT_NEAR(to_float(y[i]), want, 1e-6 + roundoff<TypeParam>() * want) << gate;
    EXPECT_NEAR(to_float(dx[i]), gate < 0 ? 0 : 2, 1e-6) << gate;
  }
}

}  // namespace
}  // namespace ms::kernels
