#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/bf16.h"
#include "tests/kernels/forced_isa.h"
#include "tests/reference/norm.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::Array;
using reference::roundoff;

constexpr double kEpsilon = 1e-5;

template <class T>
class Norm : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Norm, Types);

TYPED_TEST(Norm, ForwardAgreesWithTheDefinition) {
  for (const int64_t h : {1, 7, 8, 9, 15, 16, 17, 31, 33, 127, 768, 4099}) {
    constexpr int64_t kRows = 3;
    test::RandomValues random(static_cast<uint64_t>(h));
    const auto x = random.make<TypeParam>(kRows * h + 1, 3), gamma = random.make<TypeParam>(h);
    std::vector<TypeParam> y(static_cast<size_t>(kRows * h + 1));
    std::vector<float> rstd(kRows);
    // Offset by one element: rows need no alignment.
    rms_norm(x.data() + 1, gamma.data(), 0.0F, kRows, h, static_cast<float>(kEpsilon), y.data() + 1, rstd.data());
    const Array want = reference::rms_norm(reference::to_double(std::vector<TypeParam>(x.begin() + 1, x.end())),
                                           reference::to_double(gamma), kEpsilon);
    for (size_t i = 0; i < want.size(); ++i) {
      // The sum of h squares, then a division, a root and two products.
      const double bound = (static_cast<double>(h) / 2 + 6) * roundoff<float>() * std::abs(want[i]) +
                           roundoff<TypeParam>() * std::abs(want[i]);
      ASSERT_NEAR(to_float(y[i + 1]), want[i], bound + 1e-30) << "h " << h << " at " << i;
    }
  }
}

TYPED_TEST(Norm, BackwardAgreesWithCentralDifferences) {
  for (const int64_t h : {1, 7, 8, 17, 37}) {
    constexpr int64_t kRows = 3;
    test::RandomValues random(static_cast<uint64_t>(h) + 99);
    const auto x = random.make<TypeParam>(kRows * h, 2), gamma = random.make<TypeParam>(h);
    const auto dy = random.make<TypeParam>(kRows * h), residual = random.make<TypeParam>(kRows * h);
    const auto start = random.make(h);
    std::vector<TypeParam> y(x.size()), dx(x.size());
    std::vector<float> rstd(kRows), dgamma = start;
    rms_norm(x.data(), gamma.data(), 1.0F, kRows, h, static_cast<float>(kEpsilon), y.data(), rstd.data());
    rms_norm_backward(dy.data(), x.data(), gamma.data(), 1.0F, rstd.data(), residual.data(), kRows, h, dx.data(),
                      dgamma.data());
    const Array x64 = reference::to_double(x), gamma64 = reference::to_double(gamma), dy64 = reference::to_double(dy);
    const Array want_x = reference::numeric_gradient(
        [&](const Array& v) { return reference::dot(reference::rms_norm(v, gamma64, kEpsilon, 1), dy64); }, x64);
    const Array want_gamma = reference::numeric_gradient(
        [&](const Array& v) { return reference::dot(reference::rms_norm(x64, v, kEpsilon, 1), dy64); }, gamma64);
    // Terms of size up to max|dy gamma| * rstd cancel; h of them are summed.
    double scale = 0;
    for (const float r : rstd) scale = std::max(scale, static_cast<double>(r));
    const double bound = (static_cast<double>(h) + 16) * roundoff<float>() * (scale + 1) * 4 + 1e-7;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = want_x[i] + to_float(residual[i]);
      ASSERT_NEAR(to_float(dx[i]), want, bound + roundoff<TypeParam>() * std::abs(want)) << "h " << h << " at " << i;
    }
    for (size_t i = 0; i < gamma.size(); ++i) {
      ASSERT_NEAR(dgamma[i], want_gamma[i] + start[i], bound) << "h " << h << " at " << i;
    }
  }
}

TYPED_TEST(Norm, LayerNormAgreesWithTheDefinition) {
  for (const int64_t h : {1, 7, 8, 15, 16, 17, 33, 127, 768, 4099}) {
    constexpr int64_t kRows = 3;
    test::RandomValues random(static_cast<uint64_t>(h));
    auto x = random.make<TypeParam>(kRows * h, 3);
    for (auto& value : x) value = TypeParam(to_float(value) + 5.0F);  // a mean larger than the deviation
    const auto gamma = random.make<TypeParam>(h), beta = random.make<TypeParam>(h);
    std::vector<TypeParam> y(x.size());
    std::vector<float> mean(kRows), rstd(kRows);
    layer_norm(x.data(), gamma.data(), 0.0F, beta.data(), kRows, h, static_cast<float>(kEpsilon), y.data(), mean.data(),
               rstd.data());
    const Array want = reference::layer_norm(reference::to_double(x), reference::to_double(gamma),
                                             reference::to_double(beta), kEpsilon);
    for (size_t i = 0; i < want.size(); ++i) {
      // The mean of h numbers up to 8 is off by h/lanes roundoffs, which are multiplied by rstd and gamma.
      const double terms = static_cast<double>(h) / 2 + 8;
      const double bound = terms * roundoff<float>() * 8 * (static_cast<double>(rstd[i / static_cast<size_t>(h)]) + 1);
      ASSERT_NEAR(to_float(y[i]), want[i], bound + roundoff<TypeParam>() * std::abs(want[i])) << "h " << h << " " << i;
    }
  }
}

TYPED_TEST(Norm, LayerNormBackwardAgreesWithCentralDifferences) {
  for (const float offset : {0.0F, 1.0F}) {
    for (const int64_t h : {2, 7, 8, 17, 37}) {
      constexpr int64_t kRows = 3;
      test::RandomValues random(static_cast<uint64_t>(h) + 99);
      const auto x = random.make<TypeParam>(kRows * h, 2), gamma = random.make<TypeParam>(h);
      const auto beta = random.make<TypeParam>(h), dy = random.make<TypeParam>(kRows * h);
      const auto residual = random.make<TypeParam>(kRows * h);
      const auto start = random.make(h);
      std::vector<TypeParam> y(x.size()), dx(x.size());
      std::vector<float> mean(kRows), rstd(kRows), dgamma = start, dbeta = start;
      layer_norm(x.data(), gamma.data(), offset, beta.data(), kRows, h, static_cast<float>(kEpsilon), y.data(),
                 mean.data(), rstd.data());
      layer_norm_backward(dy.data(), x.data(), gamma.data(), offset, mean.data(), rstd.data(), residual.data(), kRows,
                          h, dx.data(), dgamma.data(), dbeta.data());
      const Array x64 = reference::to_double(x), gamma64 = reference::to_double(gamma);
      const Array beta64 = reference::to_double(beta), dy64 = reference::to_double(dy);
      const auto loss = [&](const Array& a, const Array& b, const Array& c) {
        return reference::dot(reference::layer_norm(a, b, c, kEpsilon, offset), dy64);
      };
      const Array want_x = reference::numeric_gradient([&](const Array& v) { return loss(v, gamma64, beta64); }, x64);
      const Array want_gamma =
          reference::numeric_gradient([&](const Array& v) { return loss(x64, v, beta64); }, gamma64);
      const Array want_beta =
          reference::numeric_gradient([&](const Array& v) { return loss(x64, gamma64, v); }, beta64);
      double scale = 0;
      for (const float r : rstd) scale = std::max(scale, static_cast<double>(r));
      // As for RMSNorm; central differences lose digits if rstd is large.
      const double bound =
          (static_cast<double>(h) + 16) * roundoff<float>() * (scale + 1) * 8 + 1e-7 * (1 + scale * scale);
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = want_x[i] + to_float(residual[i]);
        ASSERT_NEAR(to_float(dx[i]), want, bound + roundoff<TypeParam>() * std::abs(want)) << "h " << h << " at " << i;
      }
      for (size_t i = 0; i < gamma.size(); ++i) {
        ASSERT_NEAR(dgamma[i], want_gamma[i] + start[i], bound) << "h " << h << " at " << i;
        ASSERT_NEAR(dbeta[i], want_beta[i] + start[i], bound) << "h " << h << " at " << i;
      }
    }
  }
}

// Rows are handled in blocks; sums over rows and the last rows must not depend on it.
TYPED_TEST(Norm, GradientsOfManyRowsEqualThoseOfSingleRows) {
  for (const int64_t h : {1, 17, 768, 1040, 2051}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 8, 13}) {
      test::RandomValues random(static_cast<uint64_t>(100 * h + rows));
      const auto x = random.make<TypeParam>(rows * h, 2), dy = random.make<TypeParam>(rows * h);
      const auto residual = random.make<TypeParam>(rows * h), gamma = random.make<TypeParam>(h);
      const auto mean = random.make(rows, 0.5F);
      std::vector<float> rstd;
      for (const float value : random.make(rows, 0.5F)) rstd.push_back(1.5F + value);
      const auto n = static_cast<size_t>(h);
      for (const bool centred : {false, true}) {
        const auto run = [&](int64_t from, int64_t count, TypeParam* dx, float* dgamma, float* dbeta) {
          const int64_t at = from * h;
          if (centred) {
            layer_norm_backward(&dy[0] + at, &x[0] + at, gamma.data(), 0.5F, &mean[0] + from, &rstd[0] + from,
                                &residual[0] + at, count, h, dx, dgamma, dbeta);
          } else {
            rms_norm_backward(&dy[0] + at, &x[0] + at, gamma.data(), 0.5F, &rstd[0] + from, &residual[0] + at, count, h,
                              dx, dgamma);
          }
        };
        std::vector<TypeParam> dx(x.size()), row_dx(n);
        std::vector<float> dgamma(n), dbeta(n);
        run(0, rows, dx.data(), dgamma.data(), dbeta.data());
        std::vector<double> want_dgamma(n), want_dbeta(n), largest(n);
        for (int64_t row = 0; row < rows; ++row) {
          std::vector<float> row_dgamma(n), row_dbeta(n);
          run(row, 1, row_dx.data(), row_dgamma.data(), row_dbeta.data());
          const auto r = static_cast<size_t>(row);
          double along = 0, across = 0;
          for (size_t i = 0; i < n; ++i) {
            ASSERT_EQ(to_float(dx[r * n + i]), to_float(row_dx[i])) << "h " << h << " row " << row << " at " << i;
            const double slope = to_float(dy[r * n + i]), g = to_float(gamma[i]) + 0.5;
            const double hat = (to_float(x[r * n + i]) - (centred ? mean[r] : 0.0)) * rstd[r];
            along += g * slope * hat / static_cast<double>(h);
            across += centred ? g * slope / static_cast<double>(h) : 0.0;
            want_dgamma[i] += slope * hat;
            want_dbeta[i] += slope;
            largest[i] += std::abs(slope * hat) + std::abs(slope);
          }
          for (size_t i = 0; i < n; ++i) {
            const double slope = to_float(dy[r * n + i]), g = to_float(gamma[i]) + 0.5;
            const double hat = (to_float(x[r * n + i]) - (centred ? mean[r] : 0.0)) * rstd[r];
            const double want = rstd[r] * (g * slope - across - hat * along) + to_float(residual[r * n + i]);
            // Each sum is off by h/lanes roundoffs of its terms, which are below 12.
            const double bound = (static_cast<double>(h) + 16) * roundoff<float>() * 12 * rstd[r];
            ASSERT_NEAR(to_float(dx[r * n + i]), want, bound + roundoff<TypeParam>() * std::abs(want))
                << "h " << h << " row " << row << " at " << i;
          }
        }
        for (size_t i = 0; i < n; ++i) {
          const double bound = static_cast<double>(rows + 4) * roundoff<float>() * largest[i];
          ASSERT_NEAR(dgamma[i], want_dgamma[i], bound) << "h " << h << " rows " << rows << " at " << i;
          if (centred) {
            ASSERT_NEAR(dbeta[i], want_dbeta[i], bound) << "h " << h << " rows " << rows << " at " << i;
          }
        }
      }
    }
  }
}

// Rows are handled in blocks; results must not depend on it.
TYPED_TEST(Norm, ManyRowsEqualSingleRowsAlsoInPlace) {
  for (const int64_t h : {1, 17, 31, 768, 1040}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 8}) {
      test::RandomValues random(static_cast<uint64_t>(100 * h + rows));
      const auto x = random.make<TypeParam>(rows * h, 3), gamma = random.make<TypeParam>(h);
      const auto beta = random.make<TypeParam>(h);
      for (const bool centred : {false, true}) {
        const auto run = [&](const TypeParam* from, int64_t count, TypeParam* y, float* mean, float* rstd) {
          if (centred) {
            layer_norm(from, gamma.data(), 0.5F, beta.data(), count, h, 1e-5F, y, mean, rstd);
          } else {
            rms_norm(from, gamma.data(), 0.5F, count, h, 1e-5F, y, rstd);
          }
        };
        const auto n = static_cast<size_t>(rows);
        std::vector<TypeParam> all(x.size()), alone(x.size()), inplace = x;
        std::vector<float> mean(n), rstd(n), mean_alone(n), rstd_alone(n);
        run(x.data(), rows, all.data(), mean.data(), rstd.data());
        for (size_t row = 0; row < n; ++row) {
          const size_t at = row * static_cast<size_t>(h);
          run(&x[at], 1, &alone[at], &mean_alone[row], &rstd_alone[row]);
        }
        run(inplace.data(), rows, inplace.data(), nullptr, nullptr);
        EXPECT_EQ(mean, mean_alone);
        EXPECT_EQ(rstd, rstd_alone);
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(to_float(all[i]), to_float(alone[i])) << "h " << h << " rows " << rows << " at " << i;
          ASSERT_EQ(to_float(all[i]), to_float(inplace[i])) << "h " << h << " rows " << rows << " at " << i;
        }
      }
    }
  }
}

// 16-bit rows are summed relative to their first number: an outlier there must not cost the others precision.
TYPED_TEST(Norm, LayerNormStaysAccurateWithALeadingOutlier) {
  for (const int64_t h : {33, 768, 4099}) {
    test::RandomValues random(static_cast<uint64_t>(h));
    auto x = random.make<TypeParam>(h, 3);
    x[0] = TypeParam(1000.0F);
    const auto gamma = random.make<TypeParam>(h), beta = random.make<TypeParam>(h);
    std::vector<TypeParam> y(x.size());
    float mean = 0, rstd = 0;
    layer_norm(x.data(), gamma.data(), 0.0F, beta.data(), 1, h, static_cast<float>(kEpsilon), y.data(), &mean, &rstd);
    const Array x64 = reference::to_double(x), beta64 = reference::to_double(beta);
    const Array want = reference::layer_norm(x64, reference::to_double(gamma), beta64, kEpsilon);
    // The variance sums squares of about 1000, each at most h squared deviations: h sums with h roundoffs each.
    const double terms = (static_cast<double>(h) / 2 + 8) * static_cast<double>(h) / 2;
    for (size_t i = 0; i < want.size(); ++i) {
      const double hat = std::abs((x64[i] - static_cast<double>(mean)) * static_cast<double>(rstd));
      const double bound = terms * roundoff<float>() * (hat + 1000.0 * static_cast<double>(rstd) / std::sqrt(h));
      ASSERT_NEAR(to_float(y[i]), want[i], bound + roundoff<TypeParam>() * std::abs(want[i])) << "h " << h << " " << i;
    }
  }
}

TYPED_TEST(Norm, NaNAndInfinityStayInTheirRow) {
  constexpr int64_t kRows = 5, h = 100;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const int64_t column : {int64_t{0}, int64_t{50}, h - 1}) {
      test::RandomValues random(7);
      auto x = random.make<TypeParam>(kRows * h, 3);
      const auto gamma = random.make<TypeParam>(h);
      x[static_cast<size_t>(2 * h + column)] = TypeParam(bad);
      std::vector<TypeParam> layer(x.size()), rms(x.size());
      layer_norm(x.data(), gamma.data(), 0.0F, gamma.data(), kRows, h, 1e-5F, layer.data(), nullptr, nullptr);
      rms_norm(x.data(), gamma.data(), 0.0F, kRows, h, 1e-5F, rms.data(), nullptr);
      for (int64_t i = 0; i < kRows * h; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_EQ(std::isnan(to_float(layer[at])), i / h == 2) << i;
        // 1 / sqrt(inf) is 0: for an infinity only the element's own product is NaN.
        ASSERT_EQ(std::isnan(to_float(rms[at])), i / h == 2 && (std::isnan(bad) || i % h == column)) << i;
      }
    }
  }
}

TYPED_TEST(Norm, ZeroRowsDoNothing) {
  rms_norm<TypeParam>(nullptr, nullptr, 0, 0, 8, 1e-5F, nullptr, nullptr);
  rms_norm_backward<TypeParam>(nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0, 8, nullptr, nullptr);
  layer_norm<TypeParam>(nullptr, nullptr, 0, nullptr, 0, 8, 1e-5F, nullptr, nullptr, nullptr);
  layer_norm_backward<TypeParam>(nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr, 0, 8, nullptr, nullptr,
                                 nullptr);
}

}  // namespace
}  // namespace ms::kernels
