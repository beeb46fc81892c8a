#include "kernels/sgd.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/forced_isa.h"
#include "tests/reference/array.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::kFp32;

// torch.optim.SGD's documentation, with dampening 0 and without nesterov.
TEST(Sgd, AgreesWithTheAlgorithmOverSteps) {
  constexpr double kLr = 1e-2, kDecay = 0.1, kScale = 0.25;
  for (const double momentum : {0.9, 0.0}) {
    for (const int64_t n : {0, 1, 7, 8, 9, 16, 17, 1009}) {
      test::RandomValues random(static_cast<uint64_t>(n));
      auto p = random.make(n), m = random.make(n + 1);
      const float beyond = m.back();
      std::fill(m.begin(), m.end() - 1, 0.0F);
      std::vector<bf16> param(p.size());
      std::vector<double> want_p(p.begin(), p.end()), want_m(p.size());
      constexpr int kSteps = 20;
      for (int step = 0; step < kSteps; ++step) {
        const auto grad = random.make(n);
        auto taken = grad;
        sgd(p.data(), taken.data(), momentum > 0 ? m.data() : nullptr, step % 2 == 1 ? param.data() : nullptr, n,
            {static_cast<float>(kLr), static_cast<float>(momentum), static_cast<float>(kDecay),
             static_cast<float>(kScale)});
        for (size_t i = 0; i < p.size(); ++i) {
          const double g = grad[i] * kScale + kDecay * want_p[i];
          want_m[i] = momentum * want_m[i] + g;
          want_p[i] -= kLr * want_m[i];
        }
        ASSERT_EQ(taken, std::vector<float>(grad.size())) << n;
      }
      for (size_t i = 0; i < p.size(); ++i) {
        // m is at most 10 gradients of about 1 each; each step rounds it thrice, and p once.
        ASSERT_NEAR(p[i], want_p[i], kSteps * kFp32 * (4 + kLr * 10 * 4 * kSteps)) << n << " at " << i;
        if (momentum > 0) {
          ASSERT_NEAR(m[i], want_m[i], kSteps * kFp32 * 40) << n << " at " << i;
        }
        ASSERT_EQ(param[i], bf16(p[i]));
      }
      EXPECT_EQ(m.back(), beyond) << "written beyond the row";
    }
  }
}

}  // namespace
}  // namespace ms::kernels
