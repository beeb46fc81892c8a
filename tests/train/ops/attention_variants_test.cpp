// Sinks against transformers' gpt_oss, ALiBi against its MPT and a prefix against torch, in float64
// (bench/peers/attention_variants.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/io/json.h"
#include "train/ops/attention.h"
#include "train/ops/attention_sink.h"
#include "train/ops/elementwise.h"

namespace ms::ops {
namespace {

using core::Tensor;

constexpr int64_t kSeq = 7, kBatch = 2, kGroups = 2, kSize = 4;

class AttentionVariants : public ::testing::Test {
 protected:
  // As `value` in the script.
  Tensor value(const core::Dims& shape, int number) {
    Tensor x(arena_, core::DType::kFp32, shape, core::MemoryTag::kTmp);
    for (int64_t i = 0; i < x.size(); ++i) {
      const auto place = static_cast<double>((i + 1) * (i + 2));
      x.data<float>()[i] = static_cast<float>(2 * std::sin(0.37 * place + number));
    }
    return x;
  }
  Tensor zeros(int64_t heads) { return Tensor::zeros(arena_, core::DType::kFp32, {heads}, core::MemoryTag::kTmp); }

  core::Arena arena_;
  core::ThreadPool pool_{2};
  Context context_{pool_, arena_};
};

void expect_near(const core::TensorView& seen, const nlohmann::json& expected, const char* name) {
  ASSERT_EQ(static_cast<size_t>(seen.size()), expected.size()) << name;
  for (int64_t i = 0; i < seen.size(); ++i)
    EXPECT_NEAR(seen.data<float>()[i], expected[static_cast<size_t>(i)].get<double>(), 2e-6) << name << " at " << i;
}

TEST_F(AttentionVariants, AreThoseOfTransformers) {
  std::ifstream file(std::string(MS_TEST_DATA) + "/train/attention_variants.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 7U);
  for (const nlohmann::json& of : cases) {
    const std::string kind = of["kind"].get<std::string>();
    SCOPED_TRACE(core::cat(kind, ", window ", of["window"].get<int>()));
    const int64_t heads = kind == "alibi" ? 6 : 4;
    const Tensor q = value({kSeq, kBatch, heads, kSize}, 0), k = value({kSeq, kBatch, kGroups, kSize}, 1);
    const Tensor v = value({kSeq, kBatch, kGroups, kSize}, 2), dout = value({kSeq, kBatch, heads, kSize}, 4);
    AttentionParams params;
    params.scale = 1 / std::sqrt(static_cast<double>(kSize));
    params.window = of["window"].get<int64_t>();
    if (kind == "alibi") params.alibi_slopes = alibi_slopes(heads);
    if (kind == "prefix") params.prefix = 4;
    const AttentionResult result = causal_attention(context_, q, k, v, params);
    if (kind == "learnable" || kind == "off-by-one") {
      const Tensor sinks = kind == "learnable" ? value({heads}, 3) : zeros(heads);
      const core::TensorView of_heads = sinks;
      add_attention_sink(context_, result.out, result.lse, kind == "learnable" ? &of_heads : nullptr);
      const Tensor dsinks = zeros(heads);
      attention_sink_gradient(context_, dout, result.out, result.lse, sinks, dsinks);
      expect_near(dsinks, of["dsinks"], "dsinks");
    }
    expect_near(result.out, of["out"], "out");
    const QkvGradients gradients = causal_attention_backward(context_, dout, q, k, v, result.out, result.lse, params);
    expect_near(gradients.dq, of["dq"], "dq");
    expect_near(gradients.dk, of["dk"], "dk");
    expect_near(gradients.dv, of["dv"], "dv");
  }
}

TEST_F(AttentionVariants, SinksOfLargeScoresOverflowNothing) {
  for (const float score : {-1e30F, 1e30F}) {
    const Tensor out = value({1, 1, 1, kSize}, 0);
    const float first = out.data<float>()[0];
    Tensor lse(arena_, core::DType::kFp32, {1, 1, 1}, core::MemoryTag::kTmp),
        sinks(arena_, core::DType::kFp32, {1}, core::MemoryTag::kTmp);
    lse.data<float>()[0] = 1, sinks.data<float>()[0] = score;
    const core::TensorView of_heads = sinks;
    add_attention_sink(context_, out, lse, &of_heads);
    EXPECT_EQ(out.data<float>()[0], score < 0 ? first : 0);
    EXPECT_EQ(lse.data<float>()[0], score < 0 ? 1 : score);
  }
}

}  // namespace
}  // namespace ms::ops
