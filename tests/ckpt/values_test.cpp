// Statistics and comparisons, compared with plain loops over all elements.
#include "ckpt/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ckpt/floats.h"

namespace ms::ckpt {
namespace {

using test::Floats, test::some_values;

TEST(Values, StatisticsEqualPlainLoop) {
  auto values = some_values(7 * 11);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[20] = std::numeric_limits<float>::infinity();
  values[40] = -std::numeric_limits<float>::infinity();
  values[50] = 0;
  Floats source({7, 11}, 3, values);
  const TensorStatistics seen = tensor_statistics(source, 0, 4);
  double sum = 0, low = 1e9, high = -1e9;
  int64_t finite = 0, zeros = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    sum += value;
    low = std::min<double>(low, value);
    high = std::max<double>(high, value);
    zeros += value == 0;
    ++finite;
  }
  double squares = 0;
  std::vector<int64_t> histogram(4);
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    squares += (value - sum / 74) * (value - sum / 74);
    ++histogram[static_cast<size_t>(std::min(3.0, std::floor((value - low) / (high - low) * 4)))];
  }
  ASSERT_EQ(finite, 74);
  EXPECT_EQ(seen.elements, 77);
  EXPECT_EQ(seen.nans, 1);
  EXPECT_EQ(seen.infinities, 2);
  EXPECT_EQ(seen.zeros, zeros);
  EXPECT_EQ(seen.min, low);
  EXPECT_EQ(seen.max, high);
  EXPECT_NEAR(seen.mean, sum / 74, 1e-14);
  EXPECT_NEAR(seen.standard_deviation, std::sqrt(squares / 74), 1e-14);
  EXPECT_EQ(seen.histogram, histogram);
}

TEST(Values, StatisticsWithoutFiniteElementsAndOfOneValue) {
  Floats nothing({2, 1}, 1, {NAN, NAN});
  EXPECT_EQ(tensor_statistics(nothing, 0).nans, 2);
  EXPECT_EQ(tensor_statistics(nothing, 0).max, 0);
  Floats same({2, 1}, 1, {2.5f, 2.5f});
  EXPECT_EQ(tensor_statistics(same, 0).standard_deviation, 0);
  EXPECT_EQ(tensor_statistics(same, 0).histogram[0], 2);
}

std::optional<ValueDifference> difference_of(Source& a, Source& b) {
  const TensorPair pair;
  return compare_values(a, b, {&pair, 1}, {}).front();
}

TEST(Values, DifferencesAreFoundForAnySharding) {
  const auto values = some_values(6 * 5);
  Floats a({6, 5}, 2, values), equal({6, 5}, 4, values);
  EXPECT_FALSE(difference_of(a, equal));
  auto changed = values;
  changed[17] += 0.5f;
  changed[23] -= 2;
  Floats b({6, 5}, 1, changed);
  const auto seen = difference_of(a, b);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->elements, 30);
  EXPECT_EQ(seen->differing, 2);
  EXPECT_EQ(seen->first, (core::Dims{3, 2}));
  EXPECT_EQ(seen->first_a, values[17]);
  EXPECT_EQ(seen->first_b, changed[17]);
  EXPECT_NEAR(seen->max_abs, 2, 1e-6);
  double above = 0, below = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    above += std::pow(double{values[i]} - changed[i], 2);
    below += std::pow(double{values[i]}, 2);
  }
  EXPECT_NEAR(seen->relative_l2, std::sqrt(above / below), 1e-12);
  changed = values;
  changed[0] = NAN;
  changed[1] = INFINITY;
  Floats nan({6, 5}, 1, changed);
  const auto not_finite = difference_of(a, nan);
  EXPECT_EQ(text_of(not_finite->only_second), "1 NaN and 1 infinite");
  EXPECT_EQ(not_finite->only_first.count() + not_finite->both.count(), 0);
  EXPECT_EQ(not_finite->max_abs, 0) << "of the finite ones";
  EXPECT_FALSE(difference_of(nan, nan));
  const TensorPair pair;
  EXPECT_EQ(text_of(differences_of(nan, nan, {&pair, 1}).front().both), "1 NaN and 1 infinite");
  EXPECT_EQ(text_of(difference_of(nan, a)->only_first), "1 NaN and 1 infinite");
}

}  // namespace
}  // namespace ms::ckpt
