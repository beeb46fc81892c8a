#include "train/ops/activation.h"

#include "core/error.h"
#include "tests/reference/activation.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::Array;
using reference::kFp32;
using reference::kSlopeError;
using reference::kValueError;
using reference::roundoff;

constexpr Activation kKinds[] = {Activation::kSilu,     Activation::kGelu, Activation::kGeluTanh,
                                 Activation::kFastGelu, Activation::kRelu, Activation::kSquaredRelu};

template <class T>
class Activations : public ::testing::Test {};
TYPED_TEST_SUITE(Activations, StorageTypes);

TYPED_TEST(Activations, GatedAgreeWithTheDefinitionAndCentralDifferences) {
  for (const Activation kind : kKinds) {
    for (const int64_t f : {1, 13, 64}) {
      Ops ops(2);
      auto x = ops.random<TypeParam>({4, 3, 2 * f}, 1, 4);
      const auto dy = ops.random<TypeParam>({4, 3, f}, 2);
      const auto y = gated_activation(ops.context, kind, x);
      EXPECT_EQ(y.shape(), dy.shape());
      expect_near(y, reference::gated_activation(kind, array(x), f), 1e-30 + reference::underflow<TypeParam>(),
                  80 * kFp32 + kValueError<TypeParam> + roundoff<TypeParam>(), "y");
      const Array want = reference::numeric_gradient(
          [&](const Array& v) { return reference::dot(reference::gated_activation(kind, v, f), array(dy)); }, array(x));
      const std::byte* const memory = x.bytes();
      const auto dx = gated_activation_backward(ops.context, kind, dy, std::move(x));
      EXPECT_EQ(dx.bytes(), memory);
      expect_near(dx, want, 20 * 12 * kFp32 + 4 * kSlopeError<TypeParam> + 1e-8,
                  kValueError<TypeParam> + roundoff<TypeParam>(), "dx");
    }
  }
}

TYPED_TEST(Activations, PlainAgreeWithTheDefinitionAndCentralDifferences) {
  for (const Activation kind : kKinds) {
    Ops ops(2);
    auto x = ops.random<TypeParam>({7, 41}, 1, 4);
    const auto dy = ops.random<TypeParam>({7, 41}, 2);
    expect_near(activation(ops.context, kind, x), reference::activation(kind, array(x)),
                1e-30 + reference::underflow<TypeParam>(), 80 * kFp32 + kValueError<TypeParam> + roundoff<TypeParam>(),
                "y");
    const Array want = reference::numeric_gradient(
        [&](const Array& v) { return reference::dot(reference::activation(kind, v), array(dy)); }, array(x));
    expect_near(activation_backward(ops.context, kind, dy, std::move(x)), want,
                12 * 12 * kFp32 + kSlopeError<TypeParam> + 1e-8, kValueError<TypeParam> + roundoff<TypeParam>(), "dx");
  }
}

TYPED_TEST(Activations, SigmoidGateAgreesWithTheDefinitionAndCentralDifferences) {
  Ops ops(2);
  const core::Dims shape{5, 3, 13};
  const auto x = ops.random<TypeParam>(shape, 1, 2), gate = ops.random<TypeParam>(shape, 2, 4);
  const auto dy = ops.random<TypeParam>(shape, 3);
  const Array of_x = array(x), of_gate = array(gate), of_dy = array(dy);
  expect_near(sigmoid_gate(ops.context, x, gate), reference::sigmoid_gate(of_x, of_gate), 1e-30,
              30 * kFp32 + kValueError<TypeParam> + roundoff<TypeParam>(), "y");
  const auto loss = [&](const Array& a, const Array& b) {
    return reference::dot(reference::sigmoid_gate(a, b), of_dy);
  };
  sigmoid_gate_backward_inplace(ops.context, dy, x, gate);
  const double relative = 2 * kValueError<TypeParam> + roundoff<TypeParam>();
  expect_near(dy, reference::numeric_gradient([&](const Array& a) { return loss(a, of_gate); }, of_x),
              20 * kFp32 + kSlopeError<TypeParam> + 1e-8, relative, "dx");
  expect_near(gate, reference::numeric_gradient([&](const Array& b) { return loss(of_x, b); }, of_gate),
              20 * kFp32 + 2 * kSlopeError<TypeParam> + 1e-8, relative, "dgate");
  EXPECT_THROW(sigmoid_gate(ops.context, x, ops.random<TypeParam>({5, 39}, 1)), core::Error);
}

TEST(Softcap, AgreesWithTheDefinitionAndItsGradient) {
  Ops ops(2);
  const auto x = ops.random<float>({5, 33}, 1, 60), y = ops.tensor(values<float>(x), x.shape());
  const auto gradient = ops.random<float>({5, 33}, 2), dx = ops.tensor(values<float>(gradient), x.shape());
  softcap_inplace(ops.context, y, 30);
  softcap_backward_inplace(ops.context, dx, y, 30);
  Array want, slope;
  for (size_t i = 0; i < array(x).size(); ++i) {
    const double t = std::tanh(array(x)[i] / 30);
    want.push_back(30 * t);
    slope.push_back(array(gradient)[i] * (1 - t * t));
  }
  expect_near(y, want, 0, 10 * kFp32, "y");
  expect_near(dx, slope, 20 * kFp32, 0, "dx");
}

TEST(ActivationContract, AcceptsEmptyAndRefusesWrongShapes) {
  Ops ops;
  constexpr auto kSilu = Activation::kSilu;
  EXPECT_EQ(gated_activation(ops.context, kSilu, ops.random<float>({0, 6}, 1)).shape(), (core::Dims{0, 3}));
  EXPECT_THROW(gated_activation(ops.context, kSilu, ops.random<float>({2, 5}, 1)), core::Error);
  EXPECT_THROW(
      gated_activation_backward(ops.context, kSilu, ops.random<float>({2, 3}, 1), ops.random<float>({2, 5}, 1)),
      core::Error);
  EXPECT_THROW(activation_backward(ops.context, kSilu, ops.random<float>({2, 3}, 1), ops.random<float>({2, 5}, 1)),
               core::Error);
}

}  // namespace
}  // namespace ms::ops
