#include "train/ops/dropout_add_norm.h"

#include "core/error.h"
#include "tests/reference/norm.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/elementwise.h"

namespace ms::ops {
namespace {

using reference::Array;
using reference::kFp32;
using reference::roundoff;

constexpr int64_t kSeq = 11, kBatch = 2, kWidth = 9;
const std::vector<int64_t> kSamples = {5, 77};

// Which optional inputs are given, and which outputs are requested.
struct Case {
  bool rms, residual, bias, scales, drop, wide;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int bits = 0; bits < 64; ++bits) {
    const auto bit = [&](int i) { return (bits >> i & 1) != 0; };
    all.push_back({bit(0), bit(1), bit(2), bit(3), bit(4), bit(5)});
  }
  return all;
}

template <class T>
struct Problem {
  Ops ops;
  Case c;
  core::Tensor x0, weight, residual, bias, rowscale, layerscale;
  core::TensorView residual_view, bias_view, rowscale_view, layerscale_view;
  DropoutAddNormInputs inputs;
  DropoutAddNormParams params;

  explicit Problem(const Case& which, int threads = 2, int64_t seq = kSeq)
      : ops(threads),
        c(which),
        x0(ops.random<T>({seq, kBatch, kWidth}, 1, 2)),
        weight(ops.random<T>({kWidth}, 2)),
        residual(c.wide ? ops.random<float>({seq, kBatch, kWidth}, 3, 2) : ops.random<T>({seq, kBatch, kWidth}, 3, 2)),
        bias(ops.random<T>({kWidth}, 4)),
        rowscale(ops.random<T>({seq, kBatch}, 5)),
        layerscale(ops.random<T>({kWidth}, 6)),
        residual_view(residual),
        bias_view(bias),
        rowscale_view(rowscale),
        layerscale_view(layerscale) {
    inputs.x0 = x0, inputs.weight = weight;
    if (c.residual) inputs.residual = &residual_view;
    if (c.bias) inputs.bias = &bias_view;
    if (c.scales) inputs.rowscale = &rowscale_view, inputs.layerscale = &layerscale_view;
    params.kind = c.rms ? NormKind::kRmsNorm : NormKind::kLayerNorm;
    params.norm = {1e-3};
    if (c.drop) params.dropout = {0.3F, 11};
    params.samples = kSamples;
    params.first_position = 6;
    params.residual_in_fp32 = c.wide;
    params.return_dropout_mask = true;
  }

  // z by the definition, with the factors of dropout.
  Array z(const Array& x, const Array& past, const Array& rows, const Array& columns) const {
    Array result(x.size());
    std::vector<float> factors(kWidth, 1.0F);
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t row = i / kWidth, column = i % kWidth;
      if (c.drop && column == 0) {
        kernels::dropout_factors(params.dropout, kSamples[row % kBatch], 6 + static_cast<int64_t>(row / kBatch), 0,
                                 kWidth, factors.data());
      }
      const double scale = c.scales ? rows[row] * columns[column] : 1;
      result[i] = x[i] * scale * static_cast<double>(factors[column]) + (c.residual ? past[i] : 0);
    }
    return result;
  }
  Array norm(const Array& of_z, const Array& gamma, const Array& beta) const {
    const Array none(kWidth);
    if (!c.rms) return reference::layer_norm(of_z, gamma, c.bias ? beta : none, 1e-3);
    Array y = reference::rms_norm(of_z, gamma, 1e-3);
    for (size_t i = 0; i < y.size(); ++i) y[i] += c.bias ? beta[i % kWidth] : 0;
    return y;
  }
};

template <class T>
class DropoutAddNorm : public ::testing::Test {};
TYPED_TEST_SUITE(DropoutAddNorm, StorageTypes);

TYPED_TEST(DropoutAddNorm, AgreesWithTheDefinition) {
  for (const Case& c : cases()) {
    Problem<TypeParam> p(c);
    const auto seen = dropout_add_norm(p.ops.context, p.inputs, p.params);
    ASSERT_EQ(seen.z.dtype(), c.wide ? core::DType::kFp32 : p.x0.dtype());
    ASSERT_EQ(seen.y.dtype(), p.x0.dtype());
    const Array want_z = p.z(array(p.x0), array(p.residual), array(p.rowscale), array(p.layerscale));
    const double stored = c.wide ? kFp32 : roundoff<TypeParam>();
    expect_near(seen.z, want_z, 12 * kFp32, stored, "z");
    // The norm of the stored z.
    const double rstd = reference::max_abs(array(seen.statistics.rstd));
    expect_near(seen.y, p.norm(array(seen.z), array(p.weight), array(p.bias)), 60 * kFp32 * (rstd + 1),
                roundoff<TypeParam>(), "y");
    size_t dropped = 0;
    for (size_t i = 0; i < want_z.size(); ++i) {
      const uint8_t kept = seen.mask.template data<uint8_t>()[i];
      dropped += kept == 0;
      if (kept == 0) {
        ASSERT_EQ(array(seen.z)[i], c.residual ? array(p.residual)[i] : 0.0);
      }
    }
    const double expected = c.drop ? 0.3 * static_cast<double>(want_z.size()) : 0;
    EXPECT_NEAR(static_cast<double>(dropped), expected, 3 * std::sqrt(0.7 * expected)) << "keep rate";
  }
}

TYPED_TEST(DropoutAddNorm, GradientsAgreeWithCentralDifferences) {
  for (const Case& c : cases()) {
    Problem<TypeParam> p(c);
    const auto forward = dropout_add_norm(p.ops.context, p.inputs, p.params);
    const auto dy = p.ops.template random<TypeParam>(p.x0.shape(), 7);
    const auto past =
        c.wide ? p.ops.template random<float>(p.x0.shape(), 8) : p.ops.template random<TypeParam>(p.x0.shape(), 8);
    const core::TensorView past_view = past;
    const auto dweight = p.ops.zeros({kWidth}), dbias = p.ops.zeros({kWidth}), dlayerscale = p.ops.zeros({kWidth});
    const core::TensorView dweight_view = dweight, dbias_view = dbias, dlayerscale_view = dlayerscale;
    dweight.template data<float>()[3] = 10;
    const auto seen = dropout_add_norm_backward(p.ops.context, dy, &past_view, p.inputs, forward, p.params,
                                                {&dweight_view, &dbias_view, &dlayerscale_view});
    const Array x = array(p.x0), r = array(p.residual), rows = array(p.rowscale), columns = array(p.layerscale);
    const Array w = array(p.weight), b = array(p.bias);
    // The gradient of the norm at the stored z: what rounding z removed has no gradient.
    const auto of_norm = [&](const Array& z, const Array& gamma, const Array& beta) {
      return reference::dot(p.norm(z, gamma, beta), array(dy));
    };
    const Array z = array(forward.z);
    Array dz = reference::numeric_gradient([&](const Array& v) { return of_norm(v, w, b); }, z);
    for (size_t i = 0; i < dz.size(); ++i) dz[i] += array(past)[i];
    const auto chain = [&](const Array& a, const Array& s, const Array& t) {
      return reference::dot(p.z(a, r, s, t), dz);
    };
    const double rstd = reference::max_abs(array(forward.statistics.rstd));
    const double bound = 120 * kFp32 * (rstd + 1) + 1e-7 * (1 + rstd * rstd);
    expect_near(seen.dx0, reference::numeric_gradient([&](const Array& v) { return chain(v, rows, columns); }, x),
                2 * bound, roundoff<TypeParam>(), "dx0");
    EXPECT_EQ(seen.dresidual.defined(), c.residual);
    if (c.residual) expect_near(seen.dresidual, dz, bound, c.wide ? kFp32 : roundoff<TypeParam>(), "dresidual");
    EXPECT_EQ(seen.drowscale.defined(), c.scales);
    if (c.scales) {
      expect_near(seen.drowscale,
                  reference::numeric_gradient([&](const Array& v) { return chain(x, v, columns); }, rows),
                  kWidth * 4 * bound, kFp32, "drowscale");
      expect_near(dlayerscale, reference::numeric_gradient([&](const Array& v) { return chain(x, rows, v); }, columns),
                  kSeq * kBatch * 4 * bound, kFp32, "dlayerscale");
    }
    Array want_weight = reference::numeric_gradient([&](const Array& v) { return of_norm(z, v, b); }, w);
    want_weight[3] += 10;
    expect_near(dweight, want_weight, kSeq * kBatch * 4 * kFp32 * (rstd + 1) + 1e-6, 0, "dweight");
    if (c.bias) {
      expect_near(dbias, reference::numeric_gradient([&](const Array& v) { return of_norm(z, w, v); }, b),
                  kSeq * kBatch * 4 * kFp32 + 1e-6, 0, "dbias");
    }
  }
}

TYPED_TEST(DropoutAddNorm, WithoutDropoutEqualsAddAndNormBitForBit) {
  Problem<TypeParam> p({false, true, true, false, false, false});
  const auto z = add(p.ops.context, p.x0, p.residual);
  const auto layer = dropout_add_norm(p.ops.context, p.inputs, p.params);
  EXPECT_TRUE(same_bytes(layer.z, z));
  NormStatistics statistics;
  EXPECT_TRUE(same_bytes(layer.y, layer_norm(p.ops.context, z, p.weight, p.bias, p.params.norm, &statistics)));
  EXPECT_TRUE(same_bytes(layer.statistics.mean, statistics.mean));
  p.inputs.bias = nullptr;
  p.params.kind = NormKind::kRmsNorm;
  core::Tensor rstd;
  EXPECT_TRUE(same_bytes(dropout_add_norm(p.ops.context, p.inputs, p.params).y,
                         rms_norm(p.ops.context, z, p.weight, p.params.norm, &rstd)));
}

// Results larger than half of the last-level cache (of most machines) are written past it.
TYPED_TEST(DropoutAddNorm, LargeResultsAreBitwiseEqual) {
  Ops ops(2);
  const auto x = ops.random<TypeParam>({9000, 1, 1033}, 1), residual = ops.random<TypeParam>(x.shape(), 2);
  const auto gamma = ops.random<TypeParam>({1033}, 3);
  const core::TensorView past = residual;
  const DropoutAddNormInputs inputs{x, gamma, &past};
  DropoutAddNormParams params;
  params.kind = NormKind::kRmsNorm;
  const auto seen = dropout_add_norm(ops.context, inputs, params);
  const auto z = add(ops.context, x, residual);
  EXPECT_TRUE(same_bytes(seen.z, z));
  EXPECT_TRUE(same_bytes(seen.y, rms_norm(ops.context, z, gamma, params.norm, nullptr)));
}

TYPED_TEST(DropoutAddNorm, MasksEqualDropoutsAndBitsDoNotDependOnThreads) {
  std::vector<Array> results;
  for (const int threads : {1, 3}) {
    Problem<TypeParam> p({false, true, true, true, true, false}, threads, 200);
    const auto forward = dropout_add_norm(p.ops.context, p.inputs, p.params);
    const auto dweight = p.ops.zeros({kWidth}), dlayerscale = p.ops.zeros({kWidth});
    const core::TensorView a = dweight, b = dlayerscale;
    const auto back =
        dropout_add_norm_backward(p.ops.context, p.x0, nullptr, p.inputs, forward, p.params, {&a, nullptr, &b});
    Array all = array(forward.y);
    for (const Array& part : {array(back.dx0), array(back.drowscale), array(dweight), array(dlayerscale)}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    results.push_back(all);
    const auto alone = p.ops.tensor(std::vector<float>(200 * kBatch * kWidth, 1.0F), p.x0.shape());
    dropout_inplace(p.ops.context, alone, p.params.dropout, 6, kSamples);
    for (size_t i = 0; i < array(alone).size(); ++i) {
      ASSERT_EQ(array(alone)[i] != 0, forward.mask.template data<uint8_t>()[i] == 1) << i;
    }
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(DropoutAddNormContract, RefusesMismatchedInputs) {
  Problem<kernels::bf16> p({true, true, false, false, true, false});
  p.params.residual_in_fp32 = true;
  EXPECT_THROW(dropout_add_norm(p.ops.context, p.inputs, p.params), core::Error) << "a residual of bf16";
  p.params.residual_in_fp32 = false;
  p.params.samples = {};
  EXPECT_THROW(dropout_add_norm(p.ops.context, p.inputs, p.params), core::Error) << "no samples";
  p.params.samples = kSamples;
  const core::TensorView flat = p.x0.view().reshaped({kSeq * kBatch, kWidth});
  p.inputs.x0 = flat;
  EXPECT_THROW(dropout_add_norm(p.ops.context, p.inputs, p.params), core::Error);
}

}  // namespace
}  // namespace ms::ops
