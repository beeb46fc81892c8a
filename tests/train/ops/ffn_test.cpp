#include "train/ops/ffn.h"

#include "core/error.h"
#include "tests/reference/activation.h"
#include "tests/reference/matmul.h"
#include "tests/train/ops/integers.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/grouped_matmul.h"

namespace ms::ops {
namespace {

using kernels::Activation;
using reference::Array;
using reference::kFp32;
using reference::roundoff;

constexpr int64_t kGroups = 3, kRows = 20, kK1 = 12, kK2 = 9, kN2 = 7;
const std::vector<int64_t> kEnds = group_ends(std::vector<int64_t>{8, 0, 12});
constexpr Activation kKinds[] = {Activation::kFastGelu, Activation::kGelu, Activation::kRelu, Activation::kSilu};

int64_t group_of(int64_t row) { return row < 8 ? 0 : 2; }

// Rows of x times the matrix of their group, plus its bias.
Array product(const Array& x, const Array& w, const Array& b, int64_t k, int64_t n) {
  Array y;
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t group = group_of(row);
    const auto part = reference::matmul({x.begin() + row * k, x.begin() + (row + 1) * k}, false,
                                        {w.begin() + group * k * n, w.begin() + (group + 1) * k * n}, false, 1, n, k);
    for (int64_t j = 0; j < n; ++j) {
      y.push_back(part.value[static_cast<size_t>(j)] + (b.empty() ? 0 : b[static_cast<size_t>(group * n + j)]));
    }
  }
  return y;
}

Array activated(const FfnActivation& activation, const Array& x, int64_t k2 = kK2) {
  return activation.gated ? reference::gated_activation(activation.kind, x, k2)
                          : reference::activation(activation.kind, x);
}

template <class T>
class Ffn : public ::testing::Test {};
TYPED_TEST_SUITE(Ffn, StorageTypes);

TYPED_TEST(Ffn, AgreesForEveryActivationPlainAndGated) {
  for (const Activation kind : kKinds) {
    for (const bool gated : {false, true}) {
      for (const bool biased : {false, true}) {
        Ops ops(2);
        const int64_t n1 = gated ? 2 * kK2 : kK2;
        const auto x = ops.random<TypeParam>({kRows, kK1}, 1), w1 = ops.random<TypeParam>({kGroups, kK1, n1}, 2);
        const auto w2 = ops.random<TypeParam>({kGroups, kK2, kN2}, 3);
        const auto b1 = ops.random<TypeParam>({kGroups, n1}, 4), b2 = ops.random<TypeParam>({kGroups, kN2}, 5);
        const core::TensorView b1_view = b1, b2_view = b2;
        const FfnActivation activation{kind, gated};
        const auto y =
            ffn(ops.context, x, w1, w2, kEnds, activation, biased ? &b1_view : nullptr, biased ? &b2_view : nullptr);
        const Array wide = product(array(x), array(w1), biased ? array(b1) : Array(), kK1, n1);
        const Array want = product(activated(activation, wide), array(w2), biased ? array(b2) : Array(), kK2, kN2);
        // The stored intermediate is rounded: inputs up to 13, slopes up to 14 if gated, 9 products after it.
        const double stored = roundoff<TypeParam>() * 4 * kK2 * (gated ? 40 : 13);
        expect_near(y, want, 1e-4 + stored, 2 * roundoff<TypeParam>(), "y");
      }
    }
  }
}

// With scales that keep every number whole, the result is exact integer arithmetic.
TEST(FfnQuantised, EqualsExactIntegerArithmetic) {
  for (const bool gated : {false, true}) {
    for (const bool of_columns : {false, true}) {
      Ops ops(2);
      const int64_t n1 = gated ? 2 * kK2 : kK2;
      const auto x = int8s(ops, {kRows, kK1}, 1), w1 = int8s(ops, {kGroups, kK1, n1}, 2),
                 w2 = int8s(ops, {kGroups, kK2, kN2}, 3);
      const auto b1 = ops.tensor(test::RandomValues(4).integers(kGroups * n1, -9000, 9000), {kGroups, n1});
      const auto b2 = ops.tensor(test::RandomValues(5).integers(kGroups * kN2, -900, 900), {kGroups, kN2});
      const auto deq1 = ops.random<float>({kGroups, n1}, 6, 2e-5F), deq2 = ops.random<float>({kGroups, kN2}, 7, 1e-3F);
      const core::Dims shape = of_columns ? core::Dims{kGroups, kK2} : core::Dims{kGroups};
      const auto scale = ops.random<float>(shape, 8, 60), offset = ops.random<float>(shape, 9, 5);
      const core::TensorView b1_view = b1, b2_view = b2, offset_view = offset;
      FfnQuantization quantization{deq1, scale, &offset_view, deq2, core::DType::kFp32};
      const FfnActivation activation{Activation::kSilu, gated};
      const auto y = quant_ffn(ops.context, x, w1, w2, kEnds, activation, quantization, &b1_view, &b2_view);

      Array wide = product(int8_array(x), int8_array(w1), {}, kK1, n1);
      for (size_t i = 0; i < wide.size(); ++i) {
        const auto group = static_cast<size_t>(group_of(static_cast<int64_t>(i) / n1)),
                   at = group * static_cast<size_t>(n1) + i % static_cast<size_t>(n1);
        wide[i] = (wide[i] + b1.data<int32_t>()[at]) * array(deq1)[at];
      }
      Array narrow = activated(activation, wide);
      size_t unsure = 0;  // too near a half to know which way fp32 rounds
      std::vector<bool> sure(kRows, true);
      for (size_t i = 0; i < narrow.size(); ++i) {
        const auto group = static_cast<size_t>(group_of(static_cast<int64_t>(i) / kK2));
        const size_t at = of_columns ? group * kK2 + i % kK2 : group;
        const double real = std::min(127.0, std::max(-128.0, narrow[i] * array(scale)[at] + array(offset)[at]));
        narrow[i] = std::nearbyint(real);
        if (std::abs(std::abs(real - std::trunc(real)) - 0.5) < 1e-4) sure[i / kK2] = false, ++unsure;
      }
      ASSERT_LT(unsure, 5U);
      const Array sums = product(narrow, int8_array(w2), {}, kK2, kN2), seen = array(y);
      for (size_t i = 0; i < seen.size(); ++i) {
        if (!sure[i / kN2]) continue;
        const size_t at = static_cast<size_t>(group_of(static_cast<int64_t>(i) / kN2)) * kN2 + i % kN2;
        const double want = (sums[i] + b2.data<int32_t>()[at]) * array(deq2)[at];
        ASSERT_NEAR(seen[i], want, 4 * kFp32 * std::abs(want)) << i;
      }
    }
  }
}

TYPED_TEST(Ffn, QuantisedWeightsAgreeWithRealOnes) {
  Ops ops(2);
  const auto x = ops.random<TypeParam>({kRows, kK1}, 1);
  const auto w1 = int8s(ops, {kGroups, kK1, 2 * kK2}, 2), w2 = int8s(ops, {kGroups, kK2, kN2}, 3);
  const auto s1 = ops.random<float>({kGroups, 2 * kK2}, 4, 1e-2F), s2 = ops.random<float>({kGroups}, 5, 1e-2F);
  const FfnActivation activation{Activation::kRelu, true};
  Array r1 = int8_array(w1), r2 = int8_array(w2);
  for (size_t i = 0; i < r1.size(); ++i) r1[i] *= array(s1)[i / (kK1 * 2 * kK2) * 2 * kK2 + i % (2 * kK2)];
  for (size_t i = 0; i < r2.size(); ++i) r2[i] *= array(s2)[i / (kK2 * kN2)];
  const Array want = product(activated(activation, product(array(x), r1, {}, kK1, 2 * kK2)), r2, {}, kK2, kN2);
  expect_near(weight_quant_ffn(ops.context, x, w1, w2, kEnds, activation, {s1}, {s2}), want,
              1e-4 + roundoff<TypeParam>() * 4 * kK2 * 60, 2 * roundoff<TypeParam>(), "y");
}

// The real values of integer weights, with scales and offsets in every shape.
Array real_weights(const core::TensorView& w, const core::TensorView& scale, const core::TensorView& offset) {
  const int64_t k = w.dim(1), n = w.dim(2);
  const core::Dims& shape = scale.shape();
  const Array scales = array(scale), offsets = array(offset);
  Array real = int8_array(w);
  for (int64_t i = 0; i < w.size(); ++i) {
    const int64_t group = i / (k * n), p = i / n % k;
    const int64_t at = shape.size() == 1   ? group
                       : shape.size() == 2 ? group * n + i % n
                                           : (group * shape[1] + p / (k / shape[1])) * n + i % n;
    real[static_cast<size_t>(i)] =
        (real[static_cast<size_t>(i)] + offsets[static_cast<size_t>(at)]) * scales[static_cast<size_t>(at)];
  }
  return real;
}

TYPED_TEST(Ffn, FourBitWeightsAgreeForEveryActivationAndScale) {
  constexpr int64_t kWide = 16, kOut = 8;  // k2 and n2
  for (const Activation kind : kKinds) {
    for (const bool gated : {false, true}) {
      for (const int64_t axes : {1, 2, 3}) {
        Ops ops(2);
        const int64_t n1 = (gated ? 2 : 1) * kWide;
        const auto scales = [&](int64_t slices, int64_t n, float size, uint64_t salt) {
          const core::Dims shape = {kGroups, slices, n};
          return ops.random<TypeParam>(axes == 1   ? core::Dims{kGroups}
                                       : axes == 2 ? core::Dims{kGroups, n}
                                                   : shape,
                                       salt, size);
        };
        const auto x = ops.random<TypeParam>({kRows, kK1}, 1);
        const auto w1 = int8s(ops, {kGroups, kK1, n1}, 2, -8, 7), w2 = int8s(ops, {kGroups, kWide, kOut}, 3, -8, 7);
        const auto s1 = scales(3, n1, 0.1F, 4), s2 = scales(4, kOut, 0.1F, 5);
        const auto o1 = scales(3, n1, 2, 6), o2 = scales(4, kOut, 2, 7);
        const auto b1 = ops.random<TypeParam>({kGroups, n1}, 8), b2 = ops.random<TypeParam>({kGroups, kOut}, 9);
        const core::TensorView o1_view = o1, o2_view = o2, b1_view = b1, b2_view = b2;
        const FfnActivation activation{kind, gated};
        const Array wide = product(array(x), real_weights(w1, s1, o1), array(b1), kK1, n1);
        const Array want =
            product(activated(activation, wide, kWide), real_weights(w2, s2, o2), array(b2), kWide, kOut);
        for (const core::DType packing : {core::DType::kUInt8, core::DType::kInt32}) {
          const auto y = weight_quant_ffn(ops.context, x, packed_int4(ops, w1, packing), packed_int4(ops, w2, packing),
                                          kEnds, activation, {s1, &o1_view}, {s2, &o2_view}, &b1_view, &b2_view);
          // Weights up to 1: inputs up to 13, slopes up to 14 if gated, 16 products after the stored intermediate.
          const double stored = roundoff<TypeParam>() * 4 * kWide * (gated ? 40 : 13);
          expect_near(y, want, 1e-4 + stored, 2 * roundoff<TypeParam>(), "y");
        }
      }
    }
  }
}

TEST(FfnContract, RefusesMismatchedTokensAndWidths) {
  Ops ops;
  const auto x = ops.random<float>({4, 3}, 1), w1 = ops.random<float>({1, 3, 6}, 2),
             w2 = ops.random<float>({1, 6, 2}, 3);
  const std::vector<int64_t> ends = {4}, fewer = {3};
  EXPECT_EQ(ffn(ops.context, x, w1, w2, ends, {}).shape(), (core::Dims{4, 2}));
  EXPECT_THROW(ffn(ops.context, x, w1, w2, fewer, {}), core::Error);
  EXPECT_THROW(ffn(ops.context, x, w1, w2, ends, {Activation::kSilu, true}), core::Error) << "n1 is not 2 * k2";
}

}  // namespace
}  // namespace ms::ops
