#include "train/ops/mindspeed.h"

#include "core/error.h"
#include "tests/train/ops/integers.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/elementwise.h"

namespace ms::ops {
namespace {

TEST(Gmm, EndsAndSizesAgreeInBothTypes) {
  Ops ops(2);
  const std::vector<int64_t> sizes = {0, 3, 0, 0, 5, 0}, ends = {0, 3, 3, 3, 8, 8};
  const auto x = ops.random<float>({8, 6}, 1), weight = ops.random<float>({6, 6, 4}, 2),
             dy = ops.random<float>({8, 4}, 3);
  EXPECT_TRUE(
      same_bytes(npu_gmm(ops.context, x, weight, nullptr, ends), npu_gmm_v2(ops.context, x, weight, nullptr, sizes)));
  const auto dw = npu_gmm(ops.context, x, dy, nullptr, ends, 2);
  EXPECT_EQ(dw.shape(), (core::Dims{6, 6, 4}));
  EXPECT_TRUE(same_bytes(dw, npu_gmm_v2(ops.context, x, dy, nullptr, sizes, 2)));

  const auto fused = ops.zeros({6, 6, 4}), added = ops.zeros({6, 6, 4});
  const core::TensorView fused_view = fused;
  EXPECT_FALSE(npu_gmm_v2(ops.context, x, dy, nullptr, sizes, 2, true, &fused_view).defined());
  EXPECT_TRUE(same_bytes(fused, dw));
  npu_groupmatmul_add_fp32(ops.context, x, dy, ends, added);
  EXPECT_TRUE(same_bytes(added, dw));

  const auto refused = [&](int type, bool fusion, const core::TensorView* grad, const core::TensorView* bias) {
    try {
      npu_gmm(ops.context, x, type == 0 ? weight : dy, bias, ends, type, fusion, grad);
    } catch (const core::Error& e) {
      return e.code() == core::ErrorCode::kInvalidArgument;
    }
    return false;
  };
  EXPECT_TRUE(refused(1, false, nullptr, nullptr));
  EXPECT_TRUE(refused(0, true, &fused_view, nullptr));
  EXPECT_TRUE(refused(2, true, nullptr, nullptr));
  EXPECT_TRUE(refused(2, false, &fused_view, nullptr));
  EXPECT_TRUE(refused(2, false, nullptr, &fused_view));
}

TEST(QuantGmm, EndsAndSizesAgreeAndEveryActTypeHasItsNumber) {
  Ops ops(2);
  const std::vector<int64_t> sizes = {2, 4}, ends = {2, 6};
  const auto x = int8s(ops, {6, 8}, 1), weight = int8s(ops, {2, 8, 5}, 2);
  const auto scale = ops.random<float>({2, 5}, 3, 1e-4F);
  const std::pair<int, Activation> acts[] = {
      {1, Activation::kRelu}, {2, Activation::kGeluTanh}, {4, Activation::kFastGelu}, {5, Activation::kSilu}};
  for (const auto& [number, activation] : acts) {
    const auto seen =
        npu_quant_gmm_v2(ops.context, x, weight, scale, nullptr, nullptr, sizes, core::DType::kFp32, number);
    QuantGmmParams params;
    params.output_dtype = core::DType::kFp32, params.activation = activation;
    EXPECT_TRUE(same_bytes(seen, quant_gmm(ops.context, x, weight, scale, ends, params)));
    EXPECT_TRUE(same_bytes(
        seen, npu_quant_gmm(ops.context, x, weight, scale, nullptr, nullptr, ends, core::DType::kFp32, number)));
  }
  EXPECT_THROW(npu_quant_gmm(ops.context, x, weight, scale, nullptr, nullptr, ends, core::DType::kFp32, 3),
               core::Error);
  const auto real = ops.random<float>({6, 8}, 4);
  EXPECT_TRUE(same_bytes(npu_weight_quant_gmm(ops.context, real, weight, scale, nullptr, nullptr, ends),
                         weight_quant_gmm(ops.context, real, weight, {scale}, ends)));
  EXPECT_TRUE(same_bytes(npu_weight_quant_gmm_v2(ops.context, real, weight, scale, nullptr, nullptr, sizes),
                         weight_quant_gmm(ops.context, real, weight, {scale}, ends)));
}

TEST(MoeTokens, PermuteAndUnpermuteWithAndWithoutPadding) {
  Ops ops;
  const auto tokens = ops.random<float>({4, 3}, 1), probs = ops.tensor<float>({1, 0, 1, 0, 1, 0, 1, 0}, {4, 2});
  const core::TensorView p = probs;
  const auto there =
      npu_fused_moe_token_permute(ops.context, tokens, ops.tensor<int32_t>({1, 0, 2, 2, 0, 1, 1, 1}, {4, 2}));
  EXPECT_TRUE(same_bytes(npu_fused_moe_token_unpermute(ops.context, there.tokens, there.sorted_indices, &p), tokens));
  EXPECT_EQ(npu_fused_moe_token_unpermute(ops.context, there.tokens, there.sorted_indices).shape(), (core::Dims{8, 3}));
  const auto padded =
      npu_fused_moe_token_permute(ops.context, tokens, ops.tensor<int32_t>({3, 1, 2, 0}, {2, 2}), {}, true);
  EXPECT_TRUE(same_bytes(
      npu_fused_moe_token_unpermute(ops.context, padded.tokens, padded.sorted_indices, nullptr, true, {4, 3}), tokens));
  EXPECT_THROW(npu_fused_moe_token_unpermute(ops.context, padded.tokens, padded.sorted_indices, nullptr, true),
               core::Error);
  EXPECT_THROW(npu_fused_moe_token_unpermute(ops.context, there.tokens, there.sorted_indices, &p, false, {4, 3}),
               core::Error);
}

TEST(Others, EqualOurOperators) {
  Ops ops(2);
  const auto x = ops.random<float>({6, 8}, 1), gamma = ops.random<float>({8}, 2), dy = ops.random<float>({6, 4}, 3);
  core::Tensor rstd;
  EXPECT_TRUE(same_bytes(npu_rms_norm(ops.context, x, gamma), rms_norm(ops.context, x, gamma, {1e-6}, &rstd)));
  EXPECT_TRUE(same_bytes(npu_swiglu(ops.context, x), gated_activation(ops.context, Activation::kSilu, x)));
  const auto a = ops.zeros({4, 8}), b = ops.zeros({4, 8});
  npu_matmul_add_fp32(ops.context, x, dy, a);
  linear_wgrad(ops.context, x, dy, b);
  EXPECT_TRUE(same_bytes(a, b));

  const auto x0 = ops.random<float>({2, 3, 8}, 4);
  const DropoutAddNormInputs inputs{x0, gamma};
  DropoutAddNormParams params;
  const auto layer = npu_dropout_add_layer_norm(ops.context, inputs, params);
  EXPECT_TRUE(same_bytes(layer.y, dropout_add_norm(ops.context, inputs, params).y));
  params.kind = NormKind::kRmsNorm;
  EXPECT_TRUE(
      same_bytes(npu_dropout_add_rms_norm(ops.context, inputs, {}).y, dropout_add_norm(ops.context, inputs, params).y));

  FusionAttentionParams attention;
  attention.head_num = 2;
  const auto whole = npu_fusion_attention(ops.context, x0, x0, x0, attention);
  attention.layout = AttentionLayout::kTnd;
  const std::vector<int64_t> ends = {6};
  const PartialAttention part{whole.out.view().reshaped({6, 2, 4}), ops.zeros({6, 2}),
                              ops.tensor(std::vector<float>(12, 1.0F), {6, 2})};
  const auto merged = npu_ring_attention_update(ops.context, part, part, ends, AttentionLayout::kTnd);
  expect_near(merged.out, array(whole.out), 1e-7, 0, "two halves of the same");

  const std::vector<int64_t> experts = {4, 2};
  const auto w1 = ops.random<float>({2, 8, 10}, 5), w2 = ops.random<float>({2, 5, 3}, 6),
             w3 = ops.random<float>({2, 10, 3}, 7);
  const std::vector<int64_t> expert_ends = {4, 6};
  for (const auto& [name, kind] : {std::pair{"geglu", Activation::kGelu}, std::pair{"swiglu", Activation::kSilu},
                                   std::pair{"reglu", Activation::kRelu}}) {
    EXPECT_TRUE(same_bytes(npu_ffn(ops.context, x, w1, w2, name, {.expert_tokens = experts}),
                           ffn(ops.context, x, w1, w2, expert_ends, {kind, true})))
        << name;
  }
  for (const auto& [name, kind] : {std::pair{"fastgelu", Activation::kFastGelu}, std::pair{"gelu", Activation::kGelu},
                                   std::pair{"relu", Activation::kRelu}, std::pair{"silu", Activation::kSilu}}) {
    EXPECT_TRUE(same_bytes(npu_ffn(ops.context, x, w1, w3, name, {.expert_tokens = experts}),
                           ffn(ops.context, x, w1, w3, expert_ends, {kind, false})))
        << name;
  }
  EXPECT_THROW(npu_ffn(ops.context, x, w1, w3, "swish", {.expert_tokens = experts}), core::Error);
}

TEST(EmaAdamw, EqualsAdamwWithAnAverage) {
  Ops ops(2);
  const auto random = [](uint64_t salt) { return test::RandomValues(salt).make(100); };
  auto grad = random(1), var = random(2), s = random(3);
  std::vector<float> m(100, 0.1F), v(100, 0.2F);
  auto grad2 = grad, var2 = var, s2 = s, m2 = m, v2 = v;
  npu_apply_fused_ema_adamw(ops.context, grad, var, m, v, s, 3, 1e-2, 0.9, 0.8, 0.7, 1e-6, 0.1);
  adamw(ops.context, var2, grad2, m2, v2,
        {.lr = 1e-2, .beta1 = 0.8, .beta2 = 0.7, .eps = 1e-6, .weight_decay = 0.1, .step = 3, .ema_decay = 0.9}, {},
        s2);
  EXPECT_TRUE(var == var2 && m == m2 && v == v2 && s == s2);
  EXPECT_NE(s, random(3));
}

// Each family with experts, and without, where MindSpeed omits their axis; x has three axes.
TEST(Ffn, AcceptsMindSpeedsOptions) {
  Ops ops(2);
  const std::vector<int64_t> all = {6}, tokens = {4, 2}, ends = {4, 6};
  const auto x = ops.random<kernels::bf16>({2, 3, 8}, 1);
  const auto rows = x.view().reshaped({6, 8});
  const auto view = [](const core::Tensor& tensor) -> const core::TensorView* { return &tensor.view(); };
  {
    const auto w1 = ops.random<kernels::bf16>({8, 4}, 2), w2 = ops.random<kernels::bf16>({4, 5}, 3),
               b = ops.random<kernels::bf16>({4}, 4);
    const auto real_bias = cast(ops.context, b, core::DType::kFp32);
    const core::TensorView b_view = b.view().reshaped({1, 4});
    const auto y = npu_ffn(ops.context, x, w1, w2, "silu", {.bias1 = view(b)});
    EXPECT_EQ(y.shape(), (core::Dims{2, 3, 5}));
    EXPECT_TRUE(same_bytes(y, npu_ffn(ops.context, x, w1, w2, "silu", {.bias1 = view(real_bias)})));
    EXPECT_TRUE(
        same_bytes(y.view().reshaped({6, 5}), ffn(ops.context, rows, w1.view().reshaped({1, 8, 4}),
                                                  w2.view().reshaped({1, 4, 5}), all, {Activation::kSilu}, &b_view)));
  }
  {
    const auto q = int8s(ops, {6, 8}, 5), w1 = int8s(ops, {2, 8, 4}, 6), w2 = int8s(ops, {2, 4, 5}, 7);
    const auto deq1 = ops.random<kernels::bf16>({2, 4}, 8, 1e-4F), deq2 = ops.random<kernels::bf16>({2, 5}, 9, 1e-2F);
    const auto scale = ops.random<float>({2, 4}, 10, 60), offset = ops.random<float>({2}, 11, 5);
    NpuFfnOptions options{.expert_tokens_index = ends,
                          .scale = view(scale),
                          .offset = view(offset),
                          .deq_scale1 = view(deq1),
                          .deq_scale2 = view(deq2),
                          .output_dtype = core::DType::kBf16};
    const auto fp32 = [&](const core::Tensor& t) { return cast(ops.context, t, core::DType::kFp32); };
    const core::Tensor real1 = fp32(deq1), real2 = fp32(deq2);
    EXPECT_TRUE(same_bytes(npu_ffn(ops.context, q, w1, w2, "relu", options),
                           quant_ffn(ops.context, q, w1, w2, ends, {Activation::kRelu},
                                     {real1, scale, view(offset), real2, core::DType::kBf16})));
    options.deq_scale2 = nullptr;
    EXPECT_THROW(npu_ffn(ops.context, q, w1, w2, "relu", options), core::Error);
    options.deq_scale2 = view(deq2), options.antiquant_scale1 = view(deq1);
    EXPECT_THROW(npu_ffn(ops.context, q, w1, w2, "relu", options), core::Error);
    options.antiquant_scale1 = nullptr, options.expert_tokens = tokens;
    EXPECT_THROW(npu_ffn(ops.context, q, w1, w2, "relu", options), core::Error) << "two lists of tokens";
  }
  {
    const auto w1 = int8s(ops, {8, 16}, 12, -8, 7), w2 = int8s(ops, {8, 8}, 13, -8, 7);
    const auto s1 = ops.random<kernels::bf16>({4, 16}, 14), s2 = ops.random<kernels::bf16>({1}, 15);
    const NpuFfnOptions options{.antiquant_scale1 = view(s1), .antiquant_scale2 = view(s2)};
    const auto p1 = packed_int4(ops, w1, core::DType::kInt32), p2 = packed_int4(ops, w2, core::DType::kInt32);
    EXPECT_TRUE(
        same_bytes(npu_ffn(ops.context, x, p1, p2, "swiglu", options).view().reshaped({6, 8}),
                   weight_quant_ffn(ops.context, rows, w1.view().reshaped({1, 8, 16}), w2.view().reshaped({1, 8, 8}),
                                    all, {Activation::kSilu, true}, {s1.view().reshaped({1, 4, 16})}, {s2})));
    EXPECT_THROW(npu_ffn(ops.context, x, p1, p2, "swiglu", {.antiquant_scale1 = view(s1)}), core::Error);
  }
}

}  // namespace
}  // namespace ms::ops
