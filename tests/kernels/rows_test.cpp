#include "kernels/rows.h"

#include <gtest/gtest.h>

#include "kernels/bf16.h"
#include "tests/kernels/forced_isa.h"
#include "tests/reference/array.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::kFp32;
using reference::roundoff;

template <class T>
class Rows : public ::testing::Test {};
using Types = ::testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(Rows, Types);

TYPED_TEST(Rows, WeightedRowSumAddsInOrder) {
  for (const int64_t h : {0, 1, 7, 8, 9, 15, 16, 17, 33, 127, 768}) {
    for (const int64_t count : {0, 1, 2, 3, 8}) {
      test::RandomValues random(static_cast<uint64_t>(h * 10 + count));
      const auto x = random.make<TypeParam>(count * (h + 1) + 1, 2);
      const auto weights = random.make(count);
      std::vector<const TypeParam*> rows;
      for (int64_t r = 0; r < count; ++r) rows.push_back(x.data() + 1 + r * (h + 1));  // all rows are unaligned
      std::vector<TypeParam> weighted(static_cast<size_t>(h + 1), TypeParam(9.0F)), plain = weighted;
      weighted_row_sum(rows.data(), weights.data(), count, h, weighted.data());
      weighted_row_sum<TypeParam>(rows.data(), nullptr, count, h, plain.data());
      for (int64_t i = 0; i < h; ++i) {
        double want = 0, want_plain = 0;
        for (int64_t r = 0; r < count; ++r) {
          const double value = to_float(rows[static_cast<size_t>(r)][i]);
          want += weights[static_cast<size_t>(r)] * value, want_plain += value;
        }
        // `count` products and sums of at most 2 each.
        const double bound = static_cast<double>(2 * count * count) * kFp32 + reference::underflow<TypeParam>();
        ASSERT_NEAR(to_float(weighted[static_cast<size_t>(i)]), want, bound + roundoff<TypeParam>() * std::abs(want));
        ASSERT_NEAR(to_float(plain[static_cast<size_t>(i)]), want_plain,
                    bound + roundoff<TypeParam>() * std::abs(want_plain));
      }
      EXPECT_EQ(weighted.back(), TypeParam(9.0F)) << "written beyond the row";
    }
  }
}

TYPED_TEST(Rows, WeightedRowSumBackwardReturnsBothGradients) {
  for (const int64_t h : {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 127, 768}) {
    test::RandomValues random(static_cast<uint64_t>(h));
    const auto dy = random.make<TypeParam>(h + 1), row = random.make<TypeParam>(h + 1);
    std::vector<TypeParam> drow(static_cast<size_t>(h + 2), TypeParam(9.0F));
    const float seen = weighted_row_sum_backward(dy.data() + 1, row.data() + 1, 0.3F, h, drow.data() + 1);
    double want = 0, magnitude = 0;
    for (size_t i = 1; i < dy.size(); ++i) {
      const double product = static_cast<double>(to_float(dy[i])) * to_float(row[i]);
      want += product, magnitude += std::abs(product);
      ASSERT_EQ(to_float(drow[i]), to_float(TypeParam(to_float(dy[i]) * 0.3F))) << i;
    }
    EXPECT_NEAR(seen, want, static_cast<double>(h + 1) * kFp32 * magnitude) << h;
    EXPECT_EQ(drow.back(), TypeParam(9.0F)) << "written beyond the row";
  }
}

TEST(RowsSpecial, InfAndNanPropagate) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> a = {1, inf, nan, inf}, b = {2, 1, 1, -inf};
  const float* rows[] = {a.data(), b.data()};
  float y[4], drow[4];
  weighted_row_sum<float>(rows, nullptr, 2, 4, y);
  EXPECT_EQ(y[0], 3);
  EXPECT_EQ(y[1], inf);
  EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[3]));
  EXPECT_TRUE(std::isnan(weighted_row_sum_backward(a.data(), b.data(), 1.0F, 4, drow)));
}

}  // namespace
}  // namespace ms::kernels
