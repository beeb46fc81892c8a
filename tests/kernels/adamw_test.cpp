#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include "tests/kernels/forced_isa.h"
#include "tests/reference/adamw.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::kFp32;

AdamwScalars scalars_of(double lr, double beta1, double beta2, double eps, double decay, double grad_scale,
                        int64_t step, double ema_decay) {
  const auto f = [](double value) { return static_cast<float>(value); };
  AdamwScalars s;
  s.lr = f(lr), s.eps = f(eps), s.weight_decay = f(decay), s.grad_scale = f(grad_scale);
  s.beta1 = f(beta1), s.one_minus_beta1 = f(1 - beta1), s.beta2 = f(beta2), s.one_minus_beta2 = f(1 - beta2);
  s.bias_correction1 = f(1 - std::pow(beta1, static_cast<double>(step)));
  s.bias_correction2 = f(1 - std::pow(beta2, static_cast<double>(step)));
  s.ema_decay = f(ema_decay), s.one_minus_ema_decay = f(1 - ema_decay);
  return s;
}

TEST(Adamw, AgreesWithTheAlgorithmOverSteps) {
  for (const int64_t n : {0, 1, 7, 8, 9, 16, 17, 1009}) {
    test::RandomValues random(static_cast<uint64_t>(n));
    auto p = random.make(n), ema = random.make(n + 1);
    const float beyond = ema.back();
    std::vector<float> m(p.size()), v(p.size());
    std::vector<bf16> param(p.size());
    reference::AdamwState want{reference::to_double(p), reference::Array(p.size()), reference::Array(p.size()),
                               reference::to_double(std::vector<float>(ema.begin(), ema.end() - 1))};
    constexpr int64_t kSteps = 20;
    constexpr double kLr = 1e-2, kScale = 0.25, kEmaDecay = 0.97;
    for (int64_t step = 1; step <= kSteps; ++step) {
      const auto grad = random.make(n);
      auto taken = grad;
      adamw(p.data(), taken.data(), m.data(), v.data(), step % 2 == 0 ? param.data() : nullptr, ema.data(), n,
            scalars_of(kLr, 0.9, 0.999, 1e-8, 0.1, kScale, step, kEmaDecay));
      reference::Array scaled = reference::to_double(grad);
      for (double& g : scaled) g *= kScale;
      reference::adamw(want, scaled, kLr, 0.9, 0.999, 1e-8, 0.1, step, kEmaDecay);
      ASSERT_EQ(taken, std::vector<float>(grad.size())) << n;
    }
    for (size_t i = 0; i < p.size(); ++i) {
      // Each step rounds p once, and its update (at most about lr * 3) about ten times.
      ASSERT_NEAR(p[i], want.p[i], static_cast<double>(kSteps) * kFp32 * (2 + 3 * kLr * 12)) << n << " at " << i;
      ASSERT_NEAR(m[i], want.m[i], static_cast<double>(kSteps) * 4 * kFp32 * kScale);
      ASSERT_NEAR(v[i], want.v[i], static_cast<double>(kSteps) * 4 * kFp32 * want.v[i] + 1e-12);
      ASSERT_EQ(param[i], bf16(p[i]));
      // Three roundings per step, plus the error of p.
      ASSERT_NEAR(ema[i], want.ema[i], static_cast<double>(kSteps) * kFp32 * (3 + 2 + 3 * kLr * 12))
          << n << " at " << i;
    }
    EXPECT_EQ(ema.back(), beyond) << "written beyond the row";
  }
}

TEST(Adamw, Fp32HalvesUpdateIsBitwiseIdentical) {
  for (const int64_t n : {0, 1, 7, 8, 9, 16, 17, 1009}) {
    test::RandomValues random(static_cast<uint64_t>(n));
    auto p = random.make(n);
    for (size_t i = 0; i < p.size(); i += 3) {  // halfway between two bf16 numbers; every other upper half is even
      p[i] = std::bit_cast<float>((std::bit_cast<uint32_t>(p[i]) & 0xffff0000U) | 0x8000U);
    }
    std::vector<float> m(p.size()), v(p.size()), halves_m(p.size()), halves_v(p.size()), joined(p.size());
    std::vector<bf16> param(p.size()), high(p.size());
    std::vector<uint16_t> low(p.size());
    const Fp32Halves halves{high.data(), low.data(), halves_v.data()};
    split_fp32(p.data(), n, halves);
    for (int64_t step = 1; step <= 20; ++step) {
      const auto grad = random.make(n);
      auto taken = grad, halves_taken = grad;
      // The first updates leave p unchanged, and with it the halfway cases.
      const auto scalars = scalars_of(step <= 2 ? 0 : 1e-2, 0.9, 0.999, 1e-8, 0.1, 0.25, step, 0);
      adamw(p.data(), taken.data(), m.data(), v.data(), param.data(), nullptr, n, scalars);
      adamw(halves, halves_taken.data(), halves_m.data(), n, scalars);
      ASSERT_EQ(high, param) << n << " step " << step;
      ASSERT_EQ(halves_m, m);
      ASSERT_EQ(halves_taken, taken);
    }
    join_fp32(halves, n, joined.data());
    EXPECT_EQ(joined, p) << n;
    EXPECT_EQ(halves_v, v) << n;
  }
}

TEST(SumOfSquares, AgreesWithDouble) {
  for (const int64_t n : {0, 1, 15, 16, 17, 4096, 4099}) {
    test::RandomValues random(static_cast<uint64_t>(n));
    const auto values = random.make(n, 1e3F);
    double want = 0;
    for (const float value : values) want += static_cast<double>(value) * value;
    EXPECT_NEAR(sum_of_squares(values.data(), n), want, static_cast<double>(n) * 0x1p-53 * want) << n;
  }
}

TEST(SumOfSquares, DoesNotOverflowFp32) {
  const std::vector<float> values(33, 1e30F);
  EXPECT_NEAR(sum_of_squares(values.data(), 33) / 33e60, 1.0, 1e-6);
}

}  // namespace
}  // namespace ms::kernels
