#include "train/ops/quantized_matmul.h"

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

constexpr int64_t kGroups = 4, kRows = 37, kK = 51, kN = 72;
const std::vector<int64_t> kEnds = {0, 13, 13, 37};

size_t group_of(int64_t row) {
  size_t group = 0;
  while (row >= kEnds[group]) ++group;
  return group;
}

// The exact integer sums of row i and column j.
Array sums(const Array& x, const Array& w) {
  Array result(kRows * kN);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      for (int64_t p = 0; p < kK; ++p) {
        result[static_cast<size_t>(i * kN + j)] +=
            x[static_cast<size_t>(i * kK + p)] *
            w[(group_of(i) * kK + static_cast<size_t>(p)) * kN + static_cast<size_t>(j)];
      }
    }
  }
  return result;
}

TEST(QuantGmm, IntegerSumsAreExact) {
  Ops ops(2);
  const auto x = int8s(ops, {kRows, kK}, 1), w = int8s(ops, {kGroups, kK, kN}, 2);
  const auto ones = ops.tensor(std::vector<float>(kGroups * kN, 1.0F), {kGroups, kN});
  QuantGmmParams params;
  params.output_dtype = core::DType::kFp32;  // 51 products of at most 2^14 are exact in fp32
  expect_near(quant_gmm(ops.context, x, w, ones, kEnds, params), sums(int8_array(x), int8_array(w)), 0, 0, "sums");
  EXPECT_EQ(ops.context.flops, 2 * kRows * kK * kN);
}

template <class T>
void expect_quant_gmm(std::optional<Activation> activation, bool per_token, bool biased) {
  Ops ops(2);
  const auto x = int8s(ops, {kRows, kK}, 1), w = int8s(ops, {kGroups, kK, kN}, 2);
  const auto scale = ops.random<float>({kGroups, kN}, 3, 1e-4F), tokens = ops.random<float>({kRows}, 4);
  const auto bias = ops.tensor(test::RandomValues(5).integers(kGroups * kN, -50000, 50000), {kGroups, kN});
  const core::TensorView tokens_view = tokens, bias_view = bias;
  QuantGmmParams params;
  params.output_dtype = core::dtype_of<T>();
  params.activation = activation;
  if (per_token) params.per_token_scale = &tokens_view;
  if (biased) params.bias = &bias_view;
  Array want = sums(int8_array(x), int8_array(w));
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t at = group_of(static_cast<int64_t>(i / kN)) * kN + i % kN;
    if (biased) want[i] += bias.data<int32_t>()[at];
    want[i] *= array(scale)[at] * (per_token ? array(tokens)[i / kN] : 1.0);
    if (activation) want[i] = reference::activation(*activation, want[i]);
  }
  // Far from 0 an activation's small result comes from a large argument.
  expect_near(quant_gmm(ops.context, x, w, scale, kEnds, params), want, 1e-5, roundoff<T>() + 8 * kFp32, "y");
}

template <class T>
class QuantGmm : public ::testing::Test {};
TYPED_TEST_SUITE(QuantGmm, StorageTypes);

TYPED_TEST(QuantGmm, ScalesBiasesAndActivates) {
  for (const bool per_token : {false, true}) {
    for (const bool biased : {false, true}) {
      expect_quant_gmm<TypeParam>({}, per_token, biased);
      for (const Activation kind :
           {Activation::kRelu, Activation::kGeluTanh, Activation::kFastGelu, Activation::kSilu}) {
        expect_quant_gmm<TypeParam>(kind, per_token, biased);
      }
    }
  }
}

TEST(QuantGmm, RoundsAndClampsToInt8) {
  Ops ops(2);
  const auto x = int8s(ops, {kRows, kK}, 1), w = int8s(ops, {kGroups, kK, kN}, 2);
  const auto scale = ops.random<float>({kGroups, kN}, 3, 3e-3F);
  QuantGmmParams params;
  params.output_dtype = core::DType::kInt8;
  const Array seen = int8_array(quant_gmm(ops.context, x, w, scale, kEnds, params)),
              exact = sums(int8_array(x), int8_array(w));
  size_t ends = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    const double real = exact[i] * array(scale)[group_of(static_cast<int64_t>(i / kN)) * kN + i % kN];
    ASSERT_LE(std::abs(seen[i] - std::min(127.0, std::max(-128.0, real))), 0.5 + 1e-3) << i;
    ends += seen[i] == 127 || seen[i] == -128;
  }
  EXPECT_GT(ends, 0U);
}

TYPED_TEST(QuantGmm, BitsDoNotDependOnThreads) {
  std::vector<Array> results;
  for (const int threads : {1, 2, 3}) {
    Ops ops(threads);
    ops.context.deterministic = true;
    const auto x = int8s(ops, {kRows, kK}, 1), w = int8s(ops, {kGroups, kK, kN}, 2);
    const auto scale = ops.random<float>({kGroups, kN}, 3, 1e-4F);
    QuantGmmParams params;
    params.output_dtype = core::dtype_of<TypeParam>();
    Array all = array(quant_gmm(ops.context, x, w, scale, kEnds, params));
    const auto real = array(weight_quant_gmm(ops.context, ops.random<TypeParam>({kRows, kK}, 4), w, {scale}, kEnds));
    all.insert(all.end(), real.begin(), real.end());
    results.push_back(all);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// Scales of a whole matrix, of its columns, and of three slices of k.
TYPED_TEST(QuantGmm, WeightOnlyScalesAgreeInEveryShape) {
  for (const core::Dims& shape : {core::Dims{kGroups}, core::Dims{kGroups, kN}, core::Dims{kGroups, 3, kN}}) {
    for (const bool shifted : {false, true}) {
      Ops ops(2);
      const auto x = ops.random<TypeParam>({kRows, kK}, 1), bias = ops.random<TypeParam>({kGroups, kN}, 2);
      const auto w = int8s(ops, {kGroups, kK, kN}, 3);
      const auto scale = ops.random<float>(shape, 4, 1e-2F), offset = ops.random<float>(shape, 5, 20);
      const core::TensorView offset_view = offset, bias_view = bias;
      const auto y = weight_quant_gmm(ops.context, x, w, {scale, shifted ? &offset_view : nullptr}, kEnds, &bias_view);
      Array real = int8_array(w);
      for (size_t i = 0; i < real.size(); ++i) {
        const size_t group = i / (kK * kN), p = i / kN % kK, j = i % kN;
        const size_t at = shape.size() == 1   ? group
                          : shape.size() == 2 ? group * kN + j
                                              : (group * 3 + p / (kK / 3)) * kN + j;
        real[i] = (real[i] + (shifted ? array(offset)[at] : 0)) * array(scale)[at];
      }
      reference::Matmul want;
      for (int64_t group = 0, begin = 0; group < kGroups; begin = kEnds[static_cast<size_t>(group++)]) {
        const int64_t end = kEnds[static_cast<size_t>(group)];
        const Array xs = array(x);
        const auto part = reference::matmul({xs.begin() + begin * kK, xs.begin() + end * kK}, false,
                                            {real.begin() + group * kK * kN, real.begin() + (group + 1) * kK * kN},
                                            false, end - begin, kN, kK);
        want.value.insert(want.value.end(), part.value.begin(), part.value.end());
        want.magnitude.insert(want.magnitude.end(), part.magnitude.begin(), part.magnitude.end());
      }
      const Array seen = array(y);
      for (size_t i = 0; i < seen.size(); ++i) {
        const double b = array(bias)[group_of(static_cast<int64_t>(i / kN)) * kN + i % kN];
        // Two roundings of a weight, k of the sum, one of the bias, one of the result.
        const double bound =
            (kK + 4) * kFp32 * (want.magnitude[i] + std::abs(b)) + roundoff<TypeParam>() * std::abs(want.value[i] + b);
        ASSERT_NEAR(seen[i], want.value[i] + b, bound) << i;
      }
    }
  }
}

// 4-bit weights give the same result as equal int8 weights, in either packing and with any scales.
TYPED_TEST(QuantGmm, FourBitWeightsEqualInt8Ones) {
  for (const core::Dims& shape : {core::Dims{kGroups}, core::Dims{kGroups, kN}, core::Dims{kGroups, 3, kN}}) {
    for (const core::DType packing : {core::DType::kUInt8, core::DType::kInt32}) {
      Ops ops(2);
      const auto x = ops.random<TypeParam>({kRows, kK}, 1);
      const auto w = int8s(ops, {kGroups, kK, kN}, 3, -8, 7);
      const auto scale = ops.random<TypeParam>(shape, 4, 0.1F), offset = ops.random<TypeParam>(shape, 5, 3);
      const core::TensorView offset_view = offset;
      EXPECT_TRUE(
          same_bytes(weight_quant_gmm(ops.context, x, packed_int4(ops, w, packing), {scale, &offset_view}, kEnds),
                     weight_quant_gmm(ops.context, x, w, {scale, &offset_view}, kEnds)));
    }
  }
}

// Whole numbers and scales of powers of two: equal to sums in double, to the last bit.
TEST(QuantGmm, FourBitWeightsAreExact) {
  Ops ops(2);
  const auto w = int8s(ops, {kGroups, kK, kN}, 1, -8, 7), whole = int8s(ops, {kRows, kK}, 2, -30, 30);
  std::vector<float> x;
  for (const double value : int8_array(whole)) x.push_back(static_cast<float>(value));
  std::vector<float> scales, offsets;
  for (const int32_t power : test::RandomValues(3).integers(kGroups * 3 * kN, -6, 3)) {
    scales.push_back(std::ldexp(1.0F, power));
  }
  for (const int32_t offset : test::RandomValues(4).integers(kGroups * 3 * kN, -9, 9)) {
    offsets.push_back(static_cast<float>(offset));
  }
  Array real = int8_array(w);
  for (size_t i = 0; i < real.size(); ++i) {
    const size_t group = i / (kK * kN), p = i / kN % kK, at = (group * 3 + p / (kK / 3)) * kN + i % kN;
    real[i] = (real[i] + static_cast<double>(offsets[at])) * static_cast<double>(scales[at]);
  }
  const core::Dims shape = {kGroups, 3, kN};
  const auto scale = ops.tensor(scales, shape), offset = ops.tensor(offsets, shape);
  const core::TensorView offset_view = offset;
  for (const core::DType packing : {core::DType::kUInt8, core::DType::kInt32}) {
    const auto y = weight_quant_gmm(ops.context, ops.tensor(x, {kRows, kK}), packed_int4(ops, w, packing),
                                    {scale, &offset_view}, kEnds);
    expect_near(y, sums(int8_array(whole), real), 0, 0, "y");
  }
}

TEST(QuantGmmContract, RefusesContradictoryOptions) {
  Ops ops;
  const auto x = int8s(ops, {3, 4}, 1), w = int8s(ops, {1, 4, 5}, 2);
  const auto scale = ops.random<float>({1, 5}, 3), tokens = ops.random<float>({3}, 4),
             wrong = ops.random<float>({2}, 5);
  const core::TensorView tokens_view = tokens;
  const std::vector<int64_t> ends = {3}, other = {2};
  QuantGmmParams params;
  EXPECT_EQ(quant_gmm(ops.context, x, w, scale, ends, params).dtype(), core::DType::kBf16);
  EXPECT_THROW(quant_gmm(ops.context, x, w, scale, other, params), core::Error);
  EXPECT_THROW(quant_gmm(ops.context, x, w, wrong, ends, params), core::Error);
  EXPECT_THROW(weight_quant_gmm(ops.context, scale, w, {wrong}, ends), core::Error);
  const auto real = ops.random<float>({3, 4}, 6), real_weight = ops.random<float>({1, 4, 5}, 7);
  EXPECT_THROW(weight_quant_gmm(ops.context, real, real_weight, {scale}, ends), core::Error);
  const auto four_bits = packed_int4(ops, int8s(ops, {1, 4, 8}, 8, -8, 7), core::DType::kInt32);
  EXPECT_THROW(weight_quant_gmm(ops.context, real, four_bits, {scale}, ends), core::Error) << "n is 8, not 5";
  EXPECT_THROW(quant_gmm(ops.context, x, four_bits, scale, ends, params), core::Error) << "with real x alone";
  params.output_dtype = core::DType::kInt8;
  quant_gmm(ops.context, x, w, scale, ends, params);
  params.per_token_scale = &tokens_view;
  EXPECT_THROW(quant_gmm(ops.context, x, w, scale, ends, params), core::Error);
  params.per_token_scale = nullptr;
  params.activation = Activation::kRelu;
  EXPECT_THROW(quant_gmm(ops.context, x, w, scale, ends, params), core::Error);
  params.activation = {};
  params.output_dtype = core::DType::kInt32;
  EXPECT_THROW(quant_gmm(ops.context, x, w, scale, ends, params), core::Error);
}

}  // namespace
}  // namespace ms::ops
