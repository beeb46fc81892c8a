#include "train/ops/swiglu.h"

#include "core/error.h"
#include "tests/reference/swiglu.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::Array;
using reference::kFp32;
using reference::roundoff;

template <class T>
class Swiglu : public ::testing::Test {};
TYPED_TEST_SUITE(Swiglu, StorageTypes);

TYPED_TEST(Swiglu, AgreesWithTheDefinitionAndCentralDifferences) {
  for (const int64_t f : {1, 13, 64}) {
    Ops ops(2);
    const auto x = ops.random<TypeParam>({4, 3, 2 * f}, 1, 4), dy = ops.random<TypeParam>({4, 3, f}, 2);
    const auto y = swiglu(ops.context, x);
    EXPECT_EQ(y.shape(), dy.shape());
    expect_near(y, reference::swiglu(array(x), f), 1e-30, 12 * kFp32 + roundoff<TypeParam>(), "y");
    const auto dx = swiglu_backward(ops.context, dy, x);
    const Array want = reference::numeric_gradient(
        [&](const Array& v) { return reference::dot(reference::swiglu(v, f), array(dy)); }, array(x));
    expect_near(dx, want, 20 * 12 * kFp32 + 1e-8, roundoff<TypeParam>(), "dx");
  }
}

TEST(SwigluContract, EmptyAndWrongShapes) {
  Ops ops;
  EXPECT_EQ(swiglu(ops.context, ops.random<float>({0, 6}, 1)).shape(), (core::Dims{0, 3}));
  EXPECT_THROW(swiglu(ops.context, ops.random<float>({2, 5}, 1)), core::Error);
  EXPECT_THROW(swiglu_backward(ops.context, ops.random<float>({2, 3}, 1), ops.random<float>({2, 5}, 1)), core::Error);
}

}  // namespace
}  // namespace ms::ops
