#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include "kernels/bf16.h"
#include "tests/kernels/forced_isa.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

template <class T>
class Elementwise : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Elementwise, Types);

// One operation per element, so results equal the rounded exact ones: no tolerance.
TYPED_TEST(Elementwise, EveryElementIsRoundedOnce) {
  for (const int64_t n : {0, 1, 7, 8, 9, 15, 16, 17, 1009}) {
    test::RandomValues random(static_cast<uint64_t>(n));
    const auto a = random.make<TypeParam>(n + 1), b = random.make<TypeParam>(n + 1);
    const auto sum = random.make(n + 1);
    auto added = a, scaled = a;
    auto accumulated = sum;
    add(a.data() + 1, b.data() + 1, n, added.data() + 1);
    scale(scaled.data() + 1, n, 0.3F);
    accumulate(accumulated.data() + 1, a.data() + 1, n);
    for (size_t i = 1; i < a.size(); ++i) {
      ASSERT_EQ(added[i], TypeParam(to_float(a[i]) + to_float(b[i]))) << n << " at " << i;
      ASSERT_EQ(scaled[i], TypeParam(to_float(a[i]) * 0.3F)) << n << " at " << i;
      ASSERT_EQ(accumulated[i], sum[i] + to_float(a[i])) << n << " at " << i;
    }
    EXPECT_EQ(added[0], a[0]);
    EXPECT_EQ(scaled[0], a[0]);
    EXPECT_EQ(accumulated[0], sum[0]);
  }
}

}  // namespace
}  // namespace ms::kernels
