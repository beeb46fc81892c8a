#include "train/ops/linear.h"

#include "core/error.h"
#include "kernels/gemm/gemm.h"
#include "tests/reference/activation.h"
#include "tests/reference/matmul.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::Array;
using reference::kFp32;
using reference::roundoff;

template <class T>
class Linear : public ::testing::Test {};
TYPED_TEST_SUITE(Linear, StorageTypes);

void expect_product(const core::TensorView& seen, const reference::Matmul& want, int64_t k, double storage,
                    const char* what) {
  const Array got = array(seen);
  ASSERT_EQ(got.size(), want.value.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double bound = static_cast<double>(k + 2) * kFp32 * want.magnitude[i] + storage * std::abs(want.value[i]);
    ASSERT_NEAR(got[i], want.value[i], bound) << what << " at " << i;
  }
}

TEST(ExplainGemm, NamesTheImplementationAndWhyOthersDoNotRun) {
  Ops ops;
  const std::string fp32 = explain_gemm(ops.context, core::DType::kFp32);
  for (const kernels::GemmImplementation* implementation : kernels::gemm_implementations()) {
    if (std::string_view(implementation->name) != "onednn_bf16") continue;  // not built without oneDNN
    EXPECT_NE(fp32.find("onednn_bf16 passed over: bf16 operands only"), std::string::npos) << fp32;
  }
  EXPECT_EQ(fp32.rfind("gemm fp32: ", 0), 0u);
  for (const core::DType dtype : {core::DType::kBf16, core::DType::kFp16}) {
    kernels::GemmProblem problem;
    problem.m = problem.n = problem.k = problem.lda = problem.ldb = problem.ldc = 256;
    problem.a_type = problem.b_type = problem.c_type =
        dtype == core::DType::kBf16 ? kernels::GemmType::kBf16 : kernels::GemmType::kFp16;
    const std::string start = core::cat("gemm ", core::dtype_name(dtype), ": ", kernels::choose_gemm(problem).name);
    EXPECT_EQ(explain_gemm(ops.context, dtype).rfind(start, 0), 0u) << explain_gemm(ops.context, dtype);
  }
  ops.context.deterministic = true;
  const std::string any = explain_gemm(ops.context, core::DType::kFp32);
  EXPECT_TRUE(any.rfind("gemm fp32: packed", 0) == 0 || any.rfind("gemm fp32: naive", 0) == 0) << any;
}

// Forward, both gradients and their FLOPs, with more rows than columns and the reverse, because the longer side is
// split.
TYPED_TEST(Linear, ForwardAndGradientsAgreeWithTheDefinition) {
  const int64_t sizes[][3] = {{1, 1, 1}, {7, 33, 19}, {100, 24, 40}, {26, 129, 300}};
  for (const auto& [tokens, out, in] : sizes) {
    Ops ops(2);
    const auto x = ops.random<TypeParam>({tokens, 1, in}, 1), weight = ops.random<TypeParam>({out, in}, 2);
    const auto dy = ops.random<TypeParam>({tokens, 1, out}, 3);
    const auto y = linear(ops.context, x, weight);
    EXPECT_EQ(y.shape(), (core::Dims{tokens, 1, out}));
    EXPECT_EQ(y.dtype(), x.dtype());
    const auto want = reference::matmul(array(x), false, array(weight), true, tokens, out, in);
    expect_product(y, want, in, roundoff<TypeParam>(), "y");
    const auto wide = linear_fp32(ops.context, x, weight);
    EXPECT_EQ(wide.dtype(), core::DType::kFp32);
    expect_product(wide, want, in, kFp32, "fp32 y");

    const auto dx = linear_dgrad(ops.context, dy, weight);
    EXPECT_EQ(dx.shape(), x.shape());
    expect_product(dx, reference::matmul(array(dy), false, array(weight), false, tokens, in, out), out,
                   roundoff<TypeParam>(), "dx");

    const auto main_grad = ops.zeros({out, in});
    linear_wgrad(ops.context, x, dy, main_grad);
    linear_wgrad(ops.context, x, dy, main_grad);
    auto twice = reference::matmul(array(dy), true, array(x), false, out, in, tokens);
    for (double& v : twice.value) v *= 2;
    for (double& v : twice.magnitude) v *= 2;
    expect_product(main_grad, twice, tokens, 2 * kFp32, "main_grad");
    EXPECT_EQ(ops.context.flops, 5 * 2 * tokens * out * in);
  }
}

// --no-gradient-accumulation-fusion
TYPED_TEST(Linear, UnfusedWeightGradientIsRoundedBeforeItIsAdded) {
  constexpr int64_t kTokens = 26, kOut = 129, kIn = 200;
  Ops ops(2);
  core::Tensor each[2], both = ops.zeros({kOut, kIn});
  for (uint64_t i = 0; i < 2; ++i) {
    const auto x = ops.random<TypeParam>({kTokens, kIn}, 1 + i), dy = ops.random<TypeParam>({kTokens, kOut}, 3 + i);
    each[i] = ops.zeros({kOut, kIn});
    linear_wgrad(ops.context, x, dy, each[i], WeightGradientSum::kRounded);
    linear_wgrad(ops.context, x, dy, both, WeightGradientSum::kRounded);
    expect_product(each[i], reference::matmul(array(dy), true, array(x), false, kOut, kIn, kTokens), kTokens,
                   roundoff<TypeParam>(), "product");
  }
  EXPECT_EQ(ops.context.flops, 4 * 2 * kTokens * kOut * kIn);
  for (int64_t i = 0; i < kOut * kIn; ++i) {
    const float a = each[0].data<float>()[i], b = each[1].data<float>()[i];
    ASSERT_EQ(static_cast<float>(TypeParam(a)), a) << "not of the operands' dtype, at " << i;
    ASSERT_EQ(both.data<float>()[i], a + b) << i;
  }
}

TYPED_TEST(Linear, BiasAndItsGradientAgreeWithTheDefinition) {
  constexpr int64_t kTokens = 9, kOut = 70, kIn = 5;
  Ops ops(2);
  const auto x = ops.random<TypeParam>({kTokens, kIn}, 1), weight = ops.random<TypeParam>({kOut, kIn}, 2);
  const auto bias = ops.random<TypeParam>({kOut}, 3);
  const core::TensorView bias_view = bias;
  const auto y = linear(ops.context, x, weight, {.bias = &bias_view});
  auto want = reference::matmul(array(x), false, array(weight), true, kTokens, kOut, kIn);
  for (size_t i = 0; i < want.value.size(); ++i) want.value[i] += array(bias)[i % kOut], want.magnitude[i] += 2;
  for (size_t i = 0; i < want.value.size(); ++i) {
    ASSERT_NEAR(array(y)[i], want.value[i], (8 * kFp32 + 2 * roundoff<TypeParam>()) * want.magnitude[i]);
  }
  const auto grad = ops.zeros({kOut});
  bias_grad(ops.context, y, grad);
  for (size_t j = 0; j < kOut; ++j) {
    double sum = 0;
    for (size_t i = 0; i < kTokens; ++i) sum += array(y)[i * kOut + j];
    ASSERT_NEAR(array(grad)[j], sum, kTokens * kTokens * 4 * kFp32);
  }
}

TYPED_TEST(Linear, FusedActivationAndResidualAgreeWithTheDefinition) {
  constexpr int64_t kTokens = 40, kOut = 70, kIn = 33;
  for (const bool more_rows : {false, true}) {  // the pool splits the longer side
    Ops ops(2);
    const int64_t tokens = more_rows ? 2 * kOut : kTokens;
    const auto x = ops.random<TypeParam>({tokens, kIn}, 1), weight = ops.random<TypeParam>({kOut, kIn}, 2, 0.1F);
    const auto bias = ops.random<TypeParam>({kOut}, 3), residual = ops.random<TypeParam>({tokens, kOut}, 4);
    const core::TensorView bias_view = bias, residual_view = residual;
    const auto y = linear(ops.context, x, weight,
                          {.bias = &bias_view, .activation = kernels::Activation::kGelu, .residual = &residual_view});
    const auto product = reference::matmul(array(x), false, array(weight), true, tokens, kOut, kIn);
    for (size_t i = 0; i < product.value.size(); ++i) {
      const double argument = product.value[i] + array(bias)[i % kOut];
      const double want = reference::activation(kernels::Activation::kGelu, argument) + array(residual)[i];
      // Rounding of the product, which a library may store, and of the result.
      const double storage = roundoff<TypeParam>() * (std::abs(product.value[i]) + 2 * std::abs(want));
      ASSERT_NEAR(array(y)[i], want, (kIn + 4) * kFp32 * (product.magnitude[i] + 2) + 1.13 * storage + 4e-6) << i;
    }
  }
  Ops ops;
  const auto x = ops.random<TypeParam>({3, 4}, 1), weight = ops.random<TypeParam>({5, 4}, 2);
  const core::TensorView wrong = x;
  EXPECT_THROW(linear(ops.context, x, weight, {.bias = &wrong}), core::Error);
  EXPECT_THROW(linear(ops.context, x, weight, {.residual = &wrong}), core::Error);
}

TYPED_TEST(Linear, BitsDoNotDependOnThreads) {
  std::vector<Array> results;
  for (const int threads : {1, 2, 3}) {
    Ops ops(threads);
    ops.context.deterministic = true;
    const auto x = ops.random<TypeParam>({200, 300}, 1), weight = ops.random<TypeParam>({130, 300}, 2);
    const auto y = linear(ops.context, x, weight);
    const auto main_grad = ops.zeros({130, 300});
    linear_wgrad(ops.context, x, y, main_grad);
    const auto dx = linear_dgrad(ops.context, y, weight);
    Array all = array(y);
    for (const Array& part : {array(main_grad), array(dx)}) all.insert(all.end(), part.begin(), part.end());
    results.push_back(all);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(LinearContract, AcceptsMixedTypesForLogits) {
  Ops ops;
  const auto dlogits = ops.random<float>({6, 20}, 1);
  const auto weight = ops.random<kernels::bf16>({20, 10}, 2), x = ops.random<kernels::bf16>({6, 10}, 3);
  const auto dx = linear_dgrad(ops.context, dlogits, weight);
  EXPECT_EQ(dx.dtype(), core::DType::kBf16);
  expect_product(dx, reference::matmul(array(dlogits), false, array(weight), false, 6, 10, 20), 20,
                 roundoff<kernels::bf16>(), "dx");
  const auto main_grad = ops.zeros({20, 10});
  linear_wgrad(ops.context, x, dlogits, main_grad);
  expect_product(main_grad, reference::matmul(array(dlogits), true, array(x), false, 20, 10, 6), 6, kFp32, "main_grad");
}

TEST(LinearContract, AcceptsNoTokensAndRefusesWrongShapes) {
  Ops ops;
  const auto none = ops.random<float>({0, 4}, 1), weight = ops.random<float>({3, 4}, 2),
             x = ops.random<float>({2, 5}, 3);
  EXPECT_EQ(linear(ops.context, none, weight).shape(), (core::Dims{0, 3}));
  EXPECT_THROW(linear(ops.context, x, weight), core::Error);
  EXPECT_THROW(linear_dgrad(ops.context, x, weight), core::Error);
  EXPECT_THROW(linear_wgrad(ops.context, x, x, weight), core::Error);
}

}  // namespace
}  // namespace ms::ops
