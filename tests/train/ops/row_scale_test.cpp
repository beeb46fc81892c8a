#include "train/ops/row_scale.h"

#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

template <class T>
class RowScale : public ::testing::Test {};
TYPED_TEST_SUITE(RowScale, StorageTypes);

TYPED_TEST(RowScale, DotsAndProductsAreThoseOfTheDefinition) {
  for (const int64_t h : {1, 7, 8, 9, 129}) {
    for (const int64_t rows : {0, 1, 5}) {
      Ops ops(2);
      const auto a = ops.random<TypeParam>({rows, h}, 1), b = ops.random<TypeParam>({rows, h}, 2);
      const auto weights = ops.random<float>({rows}, 3);
      const reference::Array x = array(a), y = array(b), w = array(weights);
      reference::Array dots(static_cast<size_t>(rows)), scaled(x);
      for (size_t i = 0; i < x.size(); ++i) {
        dots[i / static_cast<size_t>(h)] += x[i] * y[i];
        scaled[i] *= w[i / static_cast<size_t>(h)];
      }
      expect_near(row_dots(ops.context, a, b), dots, static_cast<double>(h) * reference::kFp32, 0, "dots");
      scale_rows_inplace(ops.context, a, weights);
      expect_near(a, scaled, reference::underflow<TypeParam>(), reference::roundoff<TypeParam>() + 2 * reference::kFp32,
                  "scaled rows");
    }
  }
}

}  // namespace
}  // namespace ms::ops
