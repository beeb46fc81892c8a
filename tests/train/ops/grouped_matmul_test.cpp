#include "train/ops/grouped_matmul.h"

#include <cstring>

#include "core/error.h"
#include "tests/reference/matmul.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/linear.h"

namespace ms::ops {
namespace {

using reference::Array;
using reference::kFp32;
using reference::Matmul;
using reference::roundoff;

template <class T>
class GroupedMatmul : public ::testing::Test {};
TYPED_TEST_SUITE(GroupedMatmul, StorageTypes);

Array slice(const Array& x, int64_t begin, int64_t end) { return {x.begin() + begin, x.begin() + end}; }

void append(Matmul& all, const Matmul& part) {
  all.value.insert(all.value.end(), part.value.begin(), part.value.end());
  all.magnitude.insert(all.magnitude.end(), part.magnitude.begin(), part.magnitude.end());
}

template <class Stored>
void expect_product(const core::TensorView& seen, const Matmul& want, int64_t k, const char* what) {
  const Array got = array(seen);
  ASSERT_EQ(got.size(), want.value.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double bound = static_cast<double>(k + 2) * kFp32 * want.magnitude[i] +
                         roundoff<Stored>() * std::abs(want.value[i]) + reference::underflow<Stored>();
    ASSERT_NEAR(got[i], want.value[i], bound) << what << " at " << i;
  }
}

struct Case {
  std::vector<int64_t> sizes;  // of the groups
  int64_t k, n;
};
// Empty groups at the start, at the end and in a row; one row; more and fewer rows than columns; no rows at all.
const Case kCases[] = {
    {{3}, 5, 7},    {{0, 0, 13, 1, 0, 0, 40, 0}, 33, 19}, {{26, 0, 130}, 24, 48}, {{2, 3}, 300, 129},
    {{0, 0}, 4, 4}, {{1, 1, 1, 1, 1, 1, 1}, 1, 1},
};

TYPED_TEST(GroupedMatmul, EqualsOneProductPerGroup) {
  for (const Case& c : kCases) {
    const auto ends = group_ends(c.sizes);
    const auto groups = static_cast<int64_t>(ends.size()), m = ends.back(), k = c.k, n = c.n;
    for (const GroupedWeight layout : {GroupedWeight::kInOut, GroupedWeight::kOutIn}) {
      const bool in_out = layout == GroupedWeight::kInOut;
      Ops ops(2);
      const auto x = ops.random<TypeParam>({m, k}, 1), dy = ops.random<TypeParam>({m, n}, 2);
      const auto weight = ops.random<TypeParam>(in_out ? core::Dims{groups, k, n} : core::Dims{groups, n, k}, 3);
      const auto main_grad = ops.tensor(test::RandomValues(4).make(weight.size()), weight.shape());
      const Array start = array(main_grad);
      const auto y = grouped_matmul(ops.context, x, weight, ends, layout);
      const auto dx = grouped_matmul_dgrad(ops.context, dy, weight, ends, layout);
      const auto dw = grouped_matmul_wgrad(ops.context, x, dy, ends, layout);
      grouped_matmul_add_fp32(ops.context, x, dy, ends, main_grad, layout);
      EXPECT_EQ(ops.context.flops, 4 * 2 * m * n * k);

      Matmul want_y, want_dx, want_dw;
      for (int64_t group = 0, begin = 0; group < groups; begin = ends[static_cast<size_t>(group++)]) {
        const int64_t end = ends[static_cast<size_t>(group)], rows = end - begin;
        const Array xs = slice(array(x), begin * k, end * k), gs = slice(array(dy), begin * n, end * n);
        const Array w = slice(array(weight), group * k * n, (group + 1) * k * n);
        append(want_y, reference::matmul(xs, false, w, !in_out, rows, n, k));
        append(want_dx, reference::matmul(gs, false, w, in_out, rows, k, n));
        append(want_dw, in_out ? reference::matmul(xs, true, gs, false, k, n, rows)
                               : reference::matmul(gs, true, xs, false, n, k, rows));
      }
      expect_product<TypeParam>(y, want_y, k, "y");
      expect_product<TypeParam>(dx, want_dx, n, "dx");
      expect_product<TypeParam>(dw, want_dw, m, "dw");
      for (size_t i = 0; i < start.size(); ++i)
        want_dw.value[i] += start[i], want_dw.magnitude[i] += std::abs(start[i]);
      expect_product<float>(main_grad, want_dw, m + 1, "main_grad");
    }
  }
}

// Gradients of <y, dy> by central differences: dgrad and wgrad are the derivatives of forward.
TEST(GroupedMatmulGradients, AgreeWithCentralDifferences) {
  constexpr int64_t kK = 4, kN = 3;
  const std::vector<int64_t> ends = {2, 2, 7};
  Ops ops(2);
  const auto x = ops.random<float>({7, kK}, 1), weight = ops.random<float>({3, kK, kN}, 2),
             dy = ops.random<float>({7, kN}, 3);
  const auto loss = [&](const Array& a, const Array& w) {
    double sum = 0;
    for (int64_t group = 0, begin = 0; group < 3; begin = ends[static_cast<size_t>(group++)]) {
      const int64_t end = ends[static_cast<size_t>(group)];
      sum +=
          reference::dot(reference::matmul(slice(a, begin * kK, end * kK), false,
                                           slice(w, group * kK * kN, (group + 1) * kK * kN), false, end - begin, kN, kK)
                             .value,
                         slice(array(dy), begin * kN, end * kN));
    }
    return sum;
  };
  expect_near(grouped_matmul_dgrad(ops.context, dy, weight, ends, GroupedWeight::kInOut),
              reference::numeric_gradient([&](const Array& v) { return loss(v, array(weight)); }, array(x)), 1e-6, 0,
              "dx");
  expect_near(grouped_matmul_wgrad(ops.context, x, dy, ends, GroupedWeight::kInOut),
              reference::numeric_gradient([&](const Array& v) { return loss(array(x), v); }, array(weight)), 1e-6, 0,
              "dw");
}

TYPED_TEST(GroupedMatmul, AddsTheBiasOfEachGroup) {
  const std::vector<int64_t> ends = group_ends(std::vector<int64_t>{0, 5, 0, 600, 1});
  Ops ops(2);
  const auto x = ops.random<TypeParam>({606, 40}, 1), weight = ops.random<TypeParam>({5, 40, 33}, 2);
  const auto bias = ops.random<TypeParam>({5, 33}, 3);
  const core::TensorView b = bias;
  const Array products = array(grouped_matmul(ops.context, x, weight, ends, GroupedWeight::kInOut));
  const Array seen = array(grouped_matmul(ops.context, x, weight, ends, GroupedWeight::kInOut, &b));
  const Array biases = array(bias);
  ASSERT_EQ(seen.size(), products.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    const auto row = static_cast<int64_t>(i / 33);
    size_t group = 0;
    while (row >= ends[group]) ++group;
    const double want = products[i] + biases[group * 33 + i % 33];
    // The product without bias is rounded, and with bias only their sum is.
    ASSERT_NEAR(seen[i], want, 2 * roundoff<TypeParam>() * (std::abs(products[i]) + std::abs(want))) << "y at " << i;
  }
}

// Matrices of experts without tokens keep their bytes, even NaN.
TEST(GroupedMatmulAddFp32, DoesNotTouchEmptyGroups) {
  Ops ops(2);
  const std::vector<int64_t> ends = {0, 4, 4};
  const auto x = ops.random<float>({4, 3}, 1), dy = ops.random<kernels::bf16>({4, 2}, 2);
  const auto main_grad = ops.tensor(std::vector<float>(18, std::nanf("0x123")), {3, 3, 2});
  const auto before = values<float>(main_grad);
  std::fill_n(main_grad.data<float>() + 6, 6, 0.0F);
  grouped_matmul_add_fp32(ops.context, x, dy, ends, main_grad, GroupedWeight::kInOut);
  EXPECT_EQ(std::memcmp(main_grad.data<float>(), before.data(), 6 * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(main_grad.data<float>() + 12, before.data() + 12, 6 * sizeof(float)), 0);
  const auto want = reference::matmul(array(x), true, array(dy), false, 3, 2, 4);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(main_grad.data<float>()[6 + i], want.value[i], 6 * kFp32 * want.magnitude[i]);
}

TYPED_TEST(GroupedMatmul, BitsEqualALoopsForAnyThreads) {
  const std::vector<int64_t> ends = group_ends(std::vector<int64_t>{70, 0, 3, 200, 31});
  std::vector<Array> results;
  for (const int threads : {1, 2, 3, 5}) {
    Ops ops(threads);
    ops.context.deterministic = true;
    const auto x = ops.random<TypeParam>({304, 100}, 1), dy = ops.random<TypeParam>({304, 65}, 2);
    const auto weight = ops.random<TypeParam>({5, 65, 100}, 3);
    const auto y = grouped_matmul(ops.context, x, weight, ends, GroupedWeight::kOutIn);
    const auto main_grad = ops.zeros({5, 65, 100});
    grouped_matmul_add_fp32(ops.context, x, dy, ends, main_grad, GroupedWeight::kOutIn);
    Array all = array(y);
    for (const Array& part :
         {array(main_grad), array(grouped_matmul_dgrad(ops.context, dy, weight, ends, GroupedWeight::kOutIn))}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    results.push_back(all);

    const auto of_group = linear(ops.context, x.view().rows(73, 273), weight.view().rows(3, 4).reshaped({65, 100}));
    EXPECT_TRUE(same_bytes(of_group, y.view().rows(73, 273)));
  }
  for (const Array& result : results) EXPECT_EQ(result, results[0]);
}

TEST(GroupedMatmulContract, RefusesMismatchedGroups) {
  Ops ops;
  const auto x = ops.random<float>({4, 3}, 1), weight = ops.random<float>({2, 3, 5}, 2);
  const auto with = [&](std::vector<int64_t> ends) {
    return grouped_matmul(ops.context, x, weight, ends, GroupedWeight::kInOut);
  };
  EXPECT_EQ(with({1, 4}).shape(), (core::Dims{4, 5}));
  EXPECT_THROW(with({4}), core::Error);
  EXPECT_THROW(with({1, 3}), core::Error);
  EXPECT_THROW(with({5, 4}), core::Error);
  EXPECT_THROW(with({-1, 4}), core::Error);
  EXPECT_THROW(group_ends(std::vector<int64_t>{1, -1}), core::Error);
  const std::vector<int64_t> ends = {1, 4};
  EXPECT_THROW(grouped_matmul(ops.context, x, weight, ends, GroupedWeight::kOutIn), core::Error) << "the other layout";
  EXPECT_THROW(grouped_matmul_dgrad(ops.context, x, weight, ends, GroupedWeight::kInOut), core::Error);
  EXPECT_THROW(grouped_matmul_add_fp32(ops.context, x, x, ends, ops.zeros({2, 3, 5}), GroupedWeight::kInOut),
               core::Error);
}

// The matrices of one parameter of each expert lie in a buffer with others between them.
TEST(GroupedMatrices, AtADistanceGiveWhatAStackGives) {
  Ops ops(2);
  constexpr int64_t kIn = 6, kOut = 5, kGroups = 4, kStride = kIn * kOut + 11;
  const auto ends = group_ends(std::vector<int64_t>{3, 0, 7, 2});
  const auto x = ops.random<float>({12, kIn}, 1), dy = ops.random<float>({12, kOut}, 2);
  const auto buffer = ops.random<float>({kGroups * kStride}, 3), stack = ops.zeros({kGroups, kOut, kIn});
  const core::TensorView first(buffer.bytes(), core::DType::kFp32, {kOut, kIn});
  const GroupedMatrices spread(first, kGroups, kStride), dense(stack);
  for (int64_t group = 0; group < kGroups; ++group)
    std::memcpy(dense.matrix(group).bytes(), spread.matrix(group).bytes(), static_cast<size_t>(first.size_bytes()));
  const GroupedWeight layout = GroupedWeight::kOutIn;
  EXPECT_TRUE(same_bytes(grouped_matmul(ops.context, x, spread, ends, layout),
                         grouped_matmul(ops.context, x, dense, ends, layout)));
  EXPECT_TRUE(same_bytes(grouped_matmul_dgrad(ops.context, dy, spread, ends, layout),
                         grouped_matmul_dgrad(ops.context, dy, dense, ends, layout)));
  const auto before = values<float>(buffer);
  grouped_matmul_add_fp32(ops.context, x, dy, ends, spread, layout);
  grouped_matmul_add_fp32(ops.context, x, dy, ends, dense, layout);
  for (int64_t i = 0; i < buffer.size(); ++i) {
    const int64_t group = i / kStride, at = i % kStride;
    const float* const seen = buffer.data<float>() + i;
    if (at < first.size()) {
      EXPECT_EQ(*seen, dense.matrix(group).data<float>()[at]);
    } else {
      EXPECT_EQ(*seen, before[static_cast<size_t>(i)]) << "what lies between was written";
    }
  }
}

}  // namespace
}  // namespace ms::ops
