#include "train/ops/matmul.h"

#include "core/error.h"
#include "tests/reference/activation.h"
#include "tests/reference/matmul.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

template <class T>
class Matmul : public ::testing::Test {};
TYPED_TEST_SUITE(Matmul, StorageTypes);

// b in a's type, and in fp32; into rows of a larger result, of which the others stay as they are.
TYPED_TEST(Matmul, FillsRowsWithTheProduct) {
  using reference::kFp32;
  for (const int64_t m : {1, 7, 16, 65}) {
    for (const bool transposed : {false, true}) {
      for (const bool real_b : {false, true}) {
        for (const bool activates : {false, true}) {
          Ops ops(2);
          const int64_t n = 33, k = 50;
          const core::Dims shape = transposed ? core::Dims{n, k} : core::Dims{k, n};
          const auto a = ops.random<TypeParam>({m, k}, 1), bias = ops.random<TypeParam>({1, n}, 3),
                     c = ops.random<TypeParam>({m + 2, n}, 4), before = ops.random<TypeParam>({m + 2, n}, 4);
          const auto b = real_b ? ops.random<float>(shape, 2) : ops.random<TypeParam>(shape, 2);
          MatmulParams params{.transpose_b = transposed, .bias = &bias.view()};
          if (activates) params.activation = kernels::Activation::kRelu;
          matmul_into(ops.context, a, b, c.view().rows(1, m + 1), params);
          EXPECT_EQ(ops.context.flops, 2 * m * n * k);
          const auto want = reference::matmul(array(a), false, array(b), transposed, m, n, k);
          const auto seen = array(c.view().rows(1, m + 1));
          for (size_t i = 0; i < seen.size(); ++i) {
            const double plus = array(bias)[i % n], sum = want.value[i] + plus;
            const double exact = activates ? reference::activation(kernels::Activation::kRelu, sum) : sum;
            // The sum's k roundings and two more; a 16-bit library kernel rounds the sum once before the bias is added.
            const double bound = (k + 2) * kFp32 * (want.magnitude[i] + std::abs(plus)) +
                                 reference::roundoff<TypeParam>() * (std::abs(want.value[i]) + std::abs(sum));
            ASSERT_NEAR(seen[i], exact, bound) << i;
          }
          for (const int64_t row : {int64_t{0}, m + 1}) {
            EXPECT_TRUE(same_bytes(c.view().rows(row, row + 1), before.view().rows(row, row + 1)));
          }
        }
      }
    }
  }
}

TEST(MatmulContract, RefusesShapesThatDoNotFit) {
  Ops ops;
  const auto a = ops.zeros({3, 4}), b = ops.zeros({4, 5}), c = ops.zeros({3, 5});
  matmul_into(ops.context, a, b, c);
  EXPECT_THROW(matmul_into(ops.context, a, b, c, {.transpose_b = true}), core::Error);
  EXPECT_THROW(matmul_into(ops.context, a, b, a), core::Error);
  EXPECT_THROW(matmul_into(ops.context, a, b, c, {.bias = &a.view()}), core::Error);
}

}  // namespace
}  // namespace ms::ops
