#include "train/ops/optimizer.h"

#include <array>

#include "core/error.h"
#include "tests/reference/adamw.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using kernels::bf16;
using reference::kFp32;

TEST(Adamw, AgreesWithTheAlgorithmOverSteps) {
  constexpr int64_t kN = 40003;
  constexpr double kSteps = 5;
  Ops ops(2);
  auto master = test::RandomValues(1).make(kN);
  std::vector<float> m(kN), v(kN);
  std::vector<bf16> param(kN);
  reference::AdamwState want{reference::to_double(master), reference::Array(kN), reference::Array(kN)};
  AdamwParameters parameters{
      .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_scale = 0.5F, .step = 0};
  for (int64_t step = 1; step <= static_cast<int64_t>(kSteps); ++step) {
    const auto grad = test::RandomValues(static_cast<uint64_t>(step) + 10).make(kN);
    parameters.step = step;
    auto taken = grad;
    adamw(ops.context, master, taken, m, v, parameters, param);
    ASSERT_EQ(taken, std::vector<float>(kN));
    reference::Array scaled = reference::to_double(grad);
    for (double& g : scaled) g *= 0.5;
    reference::adamw(want, scaled, 3e-3, 0.9, 0.95, 1e-8, 0.1, step);
  }
  for (size_t i = 0; i < kN; ++i) {
    ASSERT_NEAR(master[i], want.p[i], kSteps * kFp32 * (1 + 3e-3 * 40)) << i;
    ASSERT_NEAR(m[i], want.m[i], kSteps * 4 * kFp32 * 0.5) << i;
    ASSERT_NEAR(v[i], want.v[i], kSteps * 4 * kFp32 * 0.25) << i;
    ASSERT_EQ(param[i], bf16(master[i])) << i;
  }
}

// The average is computed in the same pass and changes nothing else.
TEST(Adamw, AveragesTheUpdatedParameters) {
  constexpr int64_t kN = 40003;
  const auto master = test::RandomValues(1).make(kN), grad = test::RandomValues(2).make(kN),
             average = test::RandomValues(3).make(kN);
  std::vector<std::vector<float>> results;
  for (const int threads : {0, 1, 3}) {  // 0: without an average
    Ops ops(std::max(threads, 1));
    auto p = master, g = grad, ema = average;
    std::vector<float> m(kN), v(kN);
    const AdamwParameters parameters{.lr = 3e-3, .weight_decay = 0.1, .step = 1, .ema_decay = 0.99};
    adamw(ops.context, p, g, m, v, parameters, {}, threads == 0 ? std::span<float>() : ema);
    results.push_back(p);
    if (threads == 0) continue;
    for (size_t i = 0; i < ema.size(); ++i) {
      const double want = 0.99 * static_cast<double>(average[i]) + (1 - 0.99) * static_cast<double>(p[i]);
      ASSERT_NEAR(ema[i], want, 3 * kFp32) << i;
    }
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// The first step moves each parameter by lr whatever the gradient's size, plus decay by lr * weight_decay * p.
TEST(Adamw, FirstStepMovesByLr) {
  Ops ops;
  std::vector<float> p = {1.0F, -2.0F}, m(2), v(2);
  std::vector<float> grad = {1e-3F, -50.0F};
  adamw(ops.context, p, grad, m, v, {.lr = 0.01, .weight_decay = 0.5, .step = 1}, {});
  EXPECT_NEAR(p[0], 1.0 - 0.01 * (1 + 0.5), 2e-7);
  EXPECT_NEAR(p[1], -2.0 + 0.01 * (1 + 1.0), 4e-7);
}

TEST(Adamw, RefusesDifferentSizesAndStepZero) {
  Ops ops;
  std::vector<float> two(2), three(3);
  EXPECT_THROW(adamw(ops.context, two, three, two, two, {}, {}), core::Error);
  EXPECT_THROW(adamw(ops.context, two, two, two, two, {.step = 0}, {}), core::Error);
  EXPECT_THROW(adamw(ops.context, two, two, two, two, {}, {}, three), core::Error);
  adamw(ops.context, {}, {}, {}, {}, {}, {});
}

// Every tensor has its own factors; threads meet within a tensor.
TEST(Adamw, ManyTensorsAreUpdatedAsEach) {
  constexpr size_t kTensors = 5;
  const std::array<int64_t, kTensors> sizes = {40003, 1, 0, 12, 70001};
  const auto after = [&](int threads, bool together) {
    Ops ops(threads);
    std::vector<std::vector<float>> state;
    for (size_t i = 0; i < 4 * kTensors; ++i)
      state.push_back(test::RandomValues(i).make(sizes[i / 4], i % 4 == 3 ? 0 : 1));
    std::vector<AdamwTensor> tensors;
    for (size_t i = 0; i < kTensors; ++i) {
      AdamwTensor& tensor = tensors.emplace_back();
      tensor.master = state[4 * i], tensor.grad = state[4 * i + 1];
      tensor.exp_avg = state[4 * i + 2], tensor.exp_avg_sq = state[4 * i + 3];
      tensor.parameters = {.lr = i < 3 ? 3e-3 : 1e-2, .weight_decay = i % 2 == 0 ? 0.1 : 0, .step = 2};
    }
    if (together) {
      adamw(ops.context, tensors);
    } else {
      for (const AdamwTensor& tensor : tensors) adamw(ops.context, {&tensor, 1});
    }
    return state;
  };
  const auto each = after(1, false);
  for (const int threads : {1, 2, 3, 5}) EXPECT_EQ(after(threads, true), each) << threads;
}

TEST(Sgd, ManyTensorsAreUpdatedAsEach) {
  const auto after = [&](int threads, bool together) {
    Ops ops(threads);
    std::vector<std::vector<float>> state;
    for (const int64_t n : {40003, 40003, 40003, 17, 17, 17, 50001, 50001, 50001})
      state.push_back(test::RandomValues(state.size()).make(n));
    std::vector<SgdTensor> tensors(3);
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].master = state[3 * i], tensors[i].grad = state[3 * i + 1],
      tensors[i].momentum_buffer = state[3 * i + 2];
      tensors[i].parameters = {.lr = 1e-2 * static_cast<double>(i + 1), .weight_decay = i == 1 ? 0 : 0.1};
    }
    if (together) {
      sgd(ops.context, tensors);
    } else {
      for (const SgdTensor& tensor : tensors) sgd(ops.context, {&tensor, 1});
    }
    return state;
  };
  const auto each = after(1, false);
  for (const int threads : {1, 2, 3}) EXPECT_EQ(after(threads, true), each) << threads;
}

TEST(SumOfSquares, BitsDoNotDependOnThreads) {
  for (const int64_t n : {0, 1, 4095, 4096, 4097, 100003}) {
    const auto values = test::RandomValues(static_cast<uint64_t>(n)).make(n, 100);
    double want = 0;
    for (const float value : values) want += static_cast<double>(value) * value;
    Ops one(1);
    const double sum = sum_of_squares(one.context, values);
    EXPECT_NEAR(sum, want, static_cast<double>(n) * 0x1p-53 * want);
    for (const int threads : {2, 3, 5}) {
      Ops ops(threads);
      EXPECT_EQ(sum_of_squares(ops.context, values), sum) << n << " on " << threads;
    }
  }
}

TEST(SumOfSquares, OfManyTensorsAreThoseOfEach) {
  std::vector<std::vector<float>> tensors;
  for (const int64_t n : {0, 3, 4097, 0, 0, 8192, 1, 50001, 0})
    tensors.push_back(test::RandomValues(static_cast<uint64_t>(n)).make(n, 10));
  const std::vector<std::span<const float>> views(tensors.begin(), tensors.end());
  for (const int threads : {1, 3}) {
    Ops ops(threads);
    std::vector<double> sums(views.size(), -1);
    sums_of_squares(ops.context, views, sums);
    for (size_t i = 0; i < views.size(); ++i) EXPECT_EQ(sums[i], sum_of_squares(ops.context, views[i])) << i;
    sums_of_squares(ops.context, {}, {});
    EXPECT_THROW(sums_of_squares(ops.context, views, {}), core::Error);
  }
}

}  // namespace
}  // namespace ms::ops
