#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/bf16.h"
#include "tests/kernels/forced_isa.h"
#include "tests/reference/activation.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::Array;
using reference::kSlopeError;
using reference::kValueError;
using reference::roundoff;

TEST(Exp, RelativeErrorIsBoundedOverTheWholeRange) {
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

TEST(Tanh, SoftcapIsAccurateForSmallAndLargeInputs) {
  constexpr float kCap = 50;
  std::vector<float> x = {0.0F, 1e-6F, -1e-3F, 0.1F, -1.0F, 20.0F, 31.0F, -31.5F, 50.0F, 400.0F, -1e30F, 1e30F};
  for (float v = -300; v < 300; v += 0.37F) x.push_back(v);
  std::vector<float> y(x.size()), dx(x.size());
  const std::vector<float> dy(x.size(), 1.0F);
  softcap(x.data(), static_cast<int64_t>(x.size()), kCap, y.data());
  softcap_backward(dy.data(), y.data(), static_cast<int64_t>(x.size()), kCap, dx.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double t = std::tanh(static_cast<double>(x[i]) / kCap);
    ASSERT_NEAR(y[i], kCap * t, 5e-7 * kCap * std::abs(t)) << x[i];
    ASSERT_NEAR(dx[i], 1 - t * t, 2e-6) << x[i];
  }
}

constexpr Activation kKinds[] = {Activation::kSilu,     Activation::kGelu, Activation::kGeluTanh,
                                 Activation::kFastGelu, Activation::kRelu, Activation::kSquaredRelu};

template <class T>
class Activations : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Activations, Types);

TYPED_TEST(Activations, GatedAgreeWithTheDefinitionAndCentralDifferences) {
  for (const Activation kind : kKinds) {
    for (const int64_t f : {1, 7, 8, 9, 16, 17, 53}) {
      constexpr int64_t kRows = 3;
      test::RandomValues random(static_cast<uint64_t>(f));
      const auto x = random.make<TypeParam>(kRows * 2 * f, 6), dy = random.make<TypeParam>(kRows * f);
      std::vector<TypeParam> y(dy.size()), dx(x.size());
      gated_activation(kind, x.data(), kRows, f, y.data());
      gated_activation_backward(kind, dy.data(), x.data(), kRows, f, dx.data());
      const Array x64 = reference::to_double(x), dy64 = reference::to_double(dy);
      const Array want = reference::gated_activation(kind, x64, f);
      for (size_t i = 0; i < want.size(); ++i) {
        // exp or erf within 4 roundoffs, with an argument of 3 roundoffs (up to 30 in GELU's tails), a sum, a division,
        // two products.
        const double bound =
            ((12 + 90) * roundoff<float>() + kValueError<TypeParam> + roundoff<TypeParam>()) * std::abs(want[i]);
        ASSERT_NEAR(to_float(y[i]), want[i], bound + 1e-30) << "f " << f << " at " << i;
      }
      const Array gradient = reference::numeric_gradient(
          [&](const Array& v) { return reference::dot(reference::gated_activation(kind, v, f), dy64); }, x64);
      for (size_t i = 0; i < gradient.size(); ++i) {
        // 1 + gate * (1 - s) cancels near gate = -1.28: its terms are at most 7, times |dy up| <= 6.
        const double bound = 42 * 12 * roundoff<float>() + 6 * kSlopeError<TypeParam> +
                             (kValueError<TypeParam> + roundoff<TypeParam>()) * std::abs(gradient[i]);
        ASSERT_NEAR(to_float(dx[i]), gradient[i], bound) << "f " << f << " at " << i;
      }
    }
  }
}

TYPED_TEST(Activations, SigmoidGateAgreesWithItsDefinition) {
  for (const int64_t n : {0, 1, 15, 16, 17, 31, 32, 33, 64, 131}) {
    test::RandomValues random(static_cast<uint64_t>(n));
    const auto x = random.make<TypeParam>(n, 3), gate = random.make<TypeParam>(n, 9), dy = random.make<TypeParam>(n);
    std::vector<TypeParam> y(x.size()), dx = dy, dgate = gate;
    sigmoid_gate(x.data(), gate.data(), n, y.data());
    sigmoid_gate_backward(dx.data(), x.data(), dgate.data(), n, dx.data(), dgate.data());
    const Array of_x = reference::to_double(x), of_gate = reference::to_double(gate), of_dy = reference::to_double(dy);
    const Array want = reference::sigmoid_gate(of_x, of_gate), slope = reference::sigmoid_gate(of_dy, of_gate);
    // exp within 4 roundoffs, with an argument of 3 roundoffs, a sum, a division, a product.
    constexpr double kBound = (12 + 9) * roundoff<float>() + kValueError<TypeParam> + roundoff<TypeParam>();
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(to_float(y[i]), want[i], kBound * std::abs(want[i]) + 1e-30) << n << " at " << i;
      EXPECT_NEAR(to_float(dx[i]), slope[i], kBound * std::abs(slope[i]) + 1e-30) << n << " at " << i;
      const double rest = 1 / (1 + std::exp(of_gate[i])), of = slope[i] * of_x[i];
      const double error = 2 * kBound * std::abs(of * rest) + 3 * roundoff<float>() * std::abs(of);  // of 1 - s
      EXPECT_NEAR(to_float(dgate[i]), of * rest, error + reference::kSlopeError<TypeParam> * std::abs(of * rest))
          << n << " at " << i;
    }
  }
}

TYPED_TEST(Activations, PlainEqualsGatedWithUpOne) {
  for (const Activation kind : kKinds) {
    for (const int64_t n : {1, 15, 16, 33}) {
      test::RandomValues random(static_cast<uint64_t>(n));
      auto x = random.make<TypeParam>(2 * n, 6);
      const auto dy = random.make<TypeParam>(n);
      std::fill(x.begin() + n, x.end(), TypeParam(1.0F));
      std::vector<TypeParam> gated(dy.size()), plain(dy.size()), gated_dx(x.size()), dx(dy.size());
      gated_activation(kind, x.data(), 1, n, gated.data());
      activation(kind, x.data(), n, plain.data());
      gated_activation_backward(kind, dy.data(), x.data(), 1, n, gated_dx.data());
      activation_backward(kind, dy.data(), x.data(), n, dx.data());
      for (size_t i = 0; i < plain.size(); ++i) {
        ASSERT_EQ(to_float(plain[i]), to_float(gated[i]));
        ASSERT_EQ(to_float(dx[i]), to_float(gated_dx[i]));
      }
    }
  }
}

TYPED_TEST(Activations, LargeInputsStayFinite) {
  for (const Activation kind : kKinds) {
    const std::vector<float> values = {-1e4F, -200, -88.5F, 88.5F, 200, 1e4F};
    std::vector<TypeParam> x, dy(values.size(), TypeParam(1.0F)), y(values.size()), dx(2 * values.size());
    for (const float v : values) x.push_back(TypeParam(v));
    for (size_t i = 0; i < values.size(); ++i) x.push_back(TypeParam(2.0F));
    const auto f = static_cast<int64_t>(values.size());
    gated_activation(kind, x.data(), 1, f, y.data());
    gated_activation_backward(kind, dy.data(), x.data(), 1, f, dx.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const double gate = to_float(x[i]), power = kind == Activation::kSquaredRelu ? 2 : 1;
      const double want = gate < 0 ? 0 : 2 * std::pow(gate, power), slope = gate < 0 ? 0 : power * want / gate;
      EXPECT_NEAR(to_float(y[i]), want, 1e-6 + roundoff<TypeParam>() * want) << gate;
      EXPECT_NEAR(to_float(dx[i]), slope, 1e-6 + roundoff<TypeParam>() * slope) << gate;
    }
  }
}

TEST(Activation, NanInfiniteAndHugeInputsGiveLimits) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const Activation kind : kKinds) {
    // 17 elements cover both the vector code and the remainder.
    for (const float value : {std::nanf(""), kInf, -kInf, 1e20F, -1e20F, 1e38F, -1e38F}) {
      const std::vector<float> x(17, value), dy(17, 1.0F);
      std::vector<float> y(17), dx(17);
      activation(kind, x.data(), 17, y.data());
      activation_backward(kind, dy.data(), x.data(), 17, dx.data());
      const bool squared = kind == Activation::kSquaredRelu;
      for (size_t i = 0; i < y.size(); ++i) {
        const auto where = testing::Message() << static_cast<int>(kind) << " of " << value << " at " << i;
        if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan(y[i])) << where;
        } else if (value > 0) {
          EXPECT_EQ(y[i], squared ? value * value : value) << where;
        } else if (std::isinf(value)) {
          EXPECT_TRUE(y[i] == 0 || std::isnan(y[i])) << where;  // -inf * 0, as in PyTorch
        } else {
          EXPECT_EQ(y[i], 0) << where;
        }
        if (std::isfinite(value)) {
          EXPECT_EQ(dx[i], value <= 0 ? 0 : squared ? 2 * value : 1) << where;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ms::kernels
