#include "train/ops/norm.h"

#include "core/error.h"
#include "tests/reference/norm.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::Array;
using reference::kFp32;
using reference::roundoff;
using reference::underflow;

template <class T>
class RmsNorm : public ::testing::Test {};
TYPED_TEST_SUITE(RmsNorm, StorageTypes);

TYPED_TEST(RmsNorm, AgreesWithTheDefinition) {
  for (const int64_t h : {1, 17, 768}) {
    Ops ops(2);
    const auto x = ops.random<TypeParam>({5, 3, h}, 1, 3), gamma = ops.random<TypeParam>({h}, 2);
    core::Tensor rstd;
    const auto y = rms_norm(ops.context, x, gamma, {1e-5}, &rstd);
    EXPECT_EQ(y.shape(), x.shape());
    EXPECT_EQ(y.dtype(), x.dtype());
    EXPECT_EQ(rstd.shape(), (core::Dims{15}));
    expect_near(y, reference::rms_norm(array(x), array(gamma), 1e-5), underflow<TypeParam>(),
                (static_cast<double>(h) / 2 + 6) * kFp32 + roundoff<TypeParam>(), "y");
    EXPECT_TRUE(same_bytes(y, rms_norm(ops.context, x, gamma, {1e-5}, nullptr)));
  }
}

TYPED_TEST(RmsNorm, GradientsAgreeWithCentralDifferences) {
  constexpr int64_t kRows = 150, kWidth = 6;  // three blocks of dgamma
  Ops ops(2);
  const auto x = ops.random<TypeParam>({kRows, kWidth}, 1, 2), gamma = ops.random<TypeParam>({kWidth}, 2);
  const auto dy = ops.random<TypeParam>({kRows, kWidth}, 3), residual = ops.random<TypeParam>({kRows, kWidth}, 4);
  core::Tensor rstd;
  rms_norm(ops.context, x, gamma, {1e-5}, &rstd);
  const auto dgamma = ops.zeros({kWidth});
  dgamma.template data<float>()[2] = 10;
  const auto dx = rms_norm_backward(ops.context, dy, x, gamma, {1e-5}, rstd, dgamma);
  Array want_gamma = reference::numeric_gradient(
      [&](const Array& v) { return reference::dot(reference::rms_norm(array(x), v, 1e-5), array(dy)); }, array(gamma));
  want_gamma[2] += 10;
  const Array want_x = reference::numeric_gradient(
      [&](const Array& v) { return reference::dot(reference::rms_norm(v, array(gamma), 1e-5), array(dy)); }, array(x));
  expect_near(dgamma, want_gamma, 2 * static_cast<double>(kRows) * kFp32 * 3, 0, "dgamma");
  const double bound = 30 * kFp32 * reference::max_abs(array(rstd)) + 1e-7;
  expect_near(dx, want_x, bound, roundoff<TypeParam>(), "dx");

  const auto again = ops.zeros({kWidth});
  const core::TensorView residual_view = residual;
  const auto with_residual = rms_norm_backward(ops.context, dy, x, gamma, {1e-5}, rstd, again, &residual_view);
  Array sum = want_x;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += array(residual)[i];
  expect_near(with_residual, sum, 2 * bound, roundoff<TypeParam>(), "dx + dresidual");

  core::Tensor same_dy = ops.random<TypeParam>({kRows, kWidth}, 3);
  const core::TensorView read = same_dy;
  const auto once_more = ops.zeros({kWidth});
  const auto over_dy =
      rms_norm_backward(ops.context, read, x, gamma, {1e-5}, rstd, once_more, &residual_view, std::move(same_dy));
  EXPECT_EQ(over_dy.bytes(), read.bytes());
  EXPECT_TRUE(same_bytes(over_dy, with_residual));
  EXPECT_TRUE(same_bytes(once_more, again));
}

TYPED_TEST(RmsNorm, BitsDoNotDependOnThreads) {
  std::vector<std::vector<float>> gradients;
  for (const int threads : {1, 2, 3}) {
    Ops ops(threads);
    const auto x = ops.random<TypeParam>({777, 64}, 1), gamma = ops.random<TypeParam>({64}, 2);
    core::Tensor rstd;
    const auto y = rms_norm(ops.context, x, gamma, {1e-5}, &rstd);
    const auto dgamma = ops.zeros({64});
    rms_norm_backward(ops.context, y, x, gamma, {1e-5}, rstd, dgamma);
    gradients.push_back(values<float>(dgamma));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_EQ(gradients[0], gradients[2]);
}

template <class T>
class LayerNorm : public ::testing::Test {};
TYPED_TEST_SUITE(LayerNorm, StorageTypes);

TYPED_TEST(LayerNorm, AgreesWithTheDefinitionAndCentralDifferences) {
  constexpr int64_t kRows = 150, kWidth = 6;  // three blocks of the sums over rows
  for (const double offset : {0.0, 1.0}) {
    const NormParams params{1e-5, offset};
    Ops ops(2);
    const auto x = ops.random<TypeParam>({kRows, kWidth}, 1, 2), gamma = ops.random<TypeParam>({kWidth}, 2);
    const auto beta = ops.random<TypeParam>({kWidth}, 5), dy = ops.random<TypeParam>({kRows, kWidth}, 3);
    NormStatistics statistics;
    const auto y = layer_norm(ops.context, x, gamma, beta, params, &statistics);
    expect_near(y, reference::layer_norm(array(x), array(gamma), array(beta), 1e-5, offset),
                40 * kFp32 * (reference::max_abs(array(statistics.rstd)) + 1), roundoff<TypeParam>(), "y");
    EXPECT_TRUE(same_bytes(y, layer_norm(ops.context, x, gamma, beta, params, nullptr)));
    const auto dgamma = ops.zeros({kWidth}), dbeta = ops.zeros({kWidth});
    dgamma.template data<float>()[2] = 10;
    const auto dx = layer_norm_backward(ops.context, dy, x, gamma, params, statistics, dgamma, dbeta);
    const auto loss = [&](const Array& a, const Array& b, const Array& c) {
      return reference::dot(reference::layer_norm(a, b, c, 1e-5, offset), array(dy));
    };
    Array want_gamma =
        reference::numeric_gradient([&](const Array& v) { return loss(array(x), v, array(beta)); }, array(gamma));
    want_gamma[2] += 10;
    const Array want_beta =
        reference::numeric_gradient([&](const Array& v) { return loss(array(x), array(gamma), v); }, array(beta));
    const Array want_x =
        reference::numeric_gradient([&](const Array& v) { return loss(v, array(gamma), array(beta)); }, array(x));
    const double rstd = reference::max_abs(array(statistics.rstd));
    expect_near(dgamma, want_gamma, 2 * static_cast<double>(kRows) * kFp32 * 3 * (1 + rstd), 0, "dgamma");
    expect_near(dbeta, want_beta, 2 * static_cast<double>(kRows) * kFp32 * 3, 0, "dbeta");
    expect_near(dx, want_x, 60 * kFp32 * (rstd + 1) + 1e-7 * (1 + rstd * rstd), roundoff<TypeParam>(), "dx");
  }
}

TYPED_TEST(LayerNorm, BitsDoNotDependOnThreads) {
  std::vector<std::vector<float>> gradients;
  for (const int threads : {1, 3}) {
    Ops ops(threads);
    const auto x = ops.random<TypeParam>({777, 64}, 1), gamma = ops.random<TypeParam>({64}, 2);
    NormStatistics statistics;
    const auto y = layer_norm(ops.context, x, gamma, gamma, {1e-5}, &statistics);
    const auto dgamma = ops.zeros({64}), dbeta = ops.zeros({64});
    layer_norm_backward(ops.context, y, x, gamma, {1e-5}, statistics, dgamma, dbeta);
    gradients.push_back(values<float>(dgamma));
    const auto more = values<float>(dbeta);
    gradients.back().insert(gradients.back().end(), more.begin(), more.end());
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST(RmsNormContract, AcceptsNoRowsAndRefusesWrongShapes) {
  Ops ops;
  const auto x = ops.random<float>({0, 8}, 1), gamma = ops.random<float>({8}, 2), wrong = ops.random<float>({7}, 2);
  core::Tensor rstd;
  EXPECT_EQ(rms_norm(ops.context, x, gamma, {1e-5}, &rstd).size(), 0);
  EXPECT_EQ(rms_norm_backward(ops.context, x, x, gamma, {1e-5}, rstd, ops.zeros({8})).size(), 0);
  EXPECT_THROW(rms_norm(ops.context, x, wrong, {1e-5}, nullptr), core::Error);
  EXPECT_THROW(layer_norm(ops.context, x, gamma, wrong, {1e-5}, nullptr), core::Error);
}

}  // namespace
}  // namespace ms::ops
