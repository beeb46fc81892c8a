#include "kernels/attention.h"

#include <gtest/gtest.h>

#include "kernels/bf16.h"
#include "tests/kernels/forced_isa.h"
#include "tests/reference/attention.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::Array;
using reference::roundoff;

// Two query heads over one key and value head, with gaps between positions, as in a [s, b, heads, d] tensor.
template <class T>
struct Problem {
  AttentionShape shape;
  double scale;
  AttentionRule rule;
  std::vector<T> q, k, v, dout, out, dq, dk, dv;
  std::vector<float> lse, workspace;

  Problem(int64_t seq, int64_t d, float size)
      : shape{seq, d, 2 * d + 3, d + 5}, scale(1 / std::sqrt(static_cast<double>(d))) {
    rule.scale = static_cast<float>(scale);
    test::RandomValues random(static_cast<uint64_t>(seq * 1000 + d));
    q = random.make<T>(seq * shape.q_stride, size), dout = random.make<T>(seq * shape.q_stride);
    k = random.make<T>(seq * shape.kv_stride, size), v = random.make<T>(seq * shape.kv_stride);
    out = dq = std::vector<T>(q.size(), T(7.0F));
    dk = dv = std::vector<T>(k.size(), T(7.0F));
    lse.resize(static_cast<size_t>(2 * seq));
    workspace.assign(static_cast<size_t>(std::max(attention_workspace(shape), attention_backward_workspace(shape))),
                     std::nanf(""));  // content is free: nothing may come of it
  }

  void run() {
    for (int64_t head = 0; head < 2; ++head) {
      AttentionRule of_head = rule;
      of_head.dropout.key += kHeadDropoutKeyStep * static_cast<uint64_t>(head);
      causal_attention(shape, q.data() + head * shape.d, k.data(), v.data(), of_head, out.data() + head * shape.d,
                       lse.data() + head * shape.seq, workspace.data());
    }
    std::fill(workspace.begin(), workspace.end(), std::nanf(""));
    causal_attention_backward(shape, 2, dout.data(), q.data(), k.data(), v.data(), out.data(), lse.data(), rule,
                              dq.data(), dk.data(), dv.data(), workspace.data());
  }

  // The reference's rule for a head.
  reference::AttentionRule reference_rule(int64_t head) const {
    reference::AttentionRule result{scale, rule.softcap, rule.window, nullptr};
    if (rule.dropout.probability == 0) return result;
    Dropout dropout = rule.dropout;
    dropout.key += kHeadDropoutKeyStep * static_cast<uint64_t>(head);
    result.dropout = [dropout, sample = rule.sample](size_t query, size_t key) {
      float factors[4];
      dropout_factors(dropout, sample, static_cast<int64_t>(query), static_cast<int64_t>(key / 4 * 4), 4, factors);
      return static_cast<double>(factors[key % 4]);
    };
    return result;
  }

  // Rows of d out of a strided array, as double.
  Array rows(const std::vector<T>& x, int64_t stride, int64_t head) const {
    Array result;
    for (int64_t i = 0; i < shape.seq; ++i) {
      for (int64_t e = 0; e < shape.d; ++e)
        result.push_back(to_float(x[static_cast<size_t>(i * stride + head * shape.d + e)]));
    }
    return result;
  }
};

template <class T>
class Attention : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Attention, Types);

void expect_near(const Array& seen, const Array& want, double absolute, double relative, const std::string& what) {
  ASSERT_EQ(seen.size(), want.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    ASSERT_NEAR(seen[i], want[i], absolute + relative * std::abs(want[i])) << what << " at " << i;
  }
}

TYPED_TEST(Attention, ForwardAgreesWithTheDefinition) {
  const int64_t sizes[][2] = {{1, 8},    {2, 1},    {47, 16},  {48, 64},  {49, 20},
                              {191, 33}, {193, 64}, {400, 80}, {257, 128}};
  for (const auto& [seq, d] : sizes) {
    Problem<TypeParam> p(seq, d, 3);
    p.run();
    for (int64_t head = 0; head < 2; ++head) {
      const auto want =
          reference::causal_attention(p.rows(p.q, p.shape.q_stride, head), p.rows(p.k, p.shape.kv_stride, 0),
                                      p.rows(p.v, p.shape.kv_stride, 0), seq, d, p.reference_rule(head));
      // A score is a sum of d products of at most 9 * scale; its error is that of its exponential. Weights sum to 1.
      const double score = (static_cast<double>(d) + 2) * roundoff<float>() * 9 * static_cast<double>(d) * p.scale / 3;
      const double bound = 2 * score + (static_cast<double>(seq) / 8 + 16) * roundoff<float>();
      expect_near(p.rows(p.out, p.shape.q_stride, head), want.out, bound, roundoff<TypeParam>(),
                  "out, seq " + std::to_string(seq) + " d " + std::to_string(d));
      const Array lse(p.lse.begin() + head * seq, p.lse.begin() + (head + 1) * seq);
      expect_near(lse, want.lse, bound, 2 * roundoff<float>(), "lse");
    }
    // What lies between the heads' rows is not ours.
    EXPECT_EQ(p.out[static_cast<size_t>(2 * d)], TypeParam(7.0F));
    EXPECT_EQ(p.dk[static_cast<size_t>(d)], TypeParam(7.0F));
  }
}

// by_differences: against central differences, else against the chain rule written out.
template <class T>
void expect_gradients(int64_t seq, int64_t d, const AttentionRule& rule, bool by_differences) {
  Problem<T> p(seq, d, 1.5F);
  const float scale = p.rule.scale;
  p.rule = rule;
  p.rule.scale = scale;
  p.run();
  const Array k = p.rows(p.k, p.shape.kv_stride, 0), v = p.rows(p.v, p.shape.kv_stride, 0);
  Array want_k(k.size()), want_v(v.size());
  // The stored out enters as rowsum(dO * O): its rounding is an error of dS, spread by |q| and |k| <= 1.5.
  const double stored = roundoff<T>() * static_cast<double>(d);
  const double bound = 3 * stored + (static_cast<double>(seq) + 32) * 4 * roundoff<float>() + 1e-7;
  for (int64_t head = 0; head < 2; ++head) {
    const reference::AttentionRule of_head = p.reference_rule(head);
    const Array q = p.rows(p.q, p.shape.q_stride, head), g = p.rows(p.dout, p.shape.q_stride, head);
    reference::AttentionGradients want;
    if (by_differences) {
      const auto loss = [&](const Array& a, const Array& b, const Array& c) {
        return reference::dot(reference::causal_attention(a, b, c, seq, d, of_head).out, g);
      };
      want.dq = reference::numeric_gradient([&](const Array& x) { return loss(x, k, v); }, q);
      want.dk = reference::numeric_gradient([&](const Array& x) { return loss(q, x, v); }, k);
      want.dv = reference::numeric_gradient([&](const Array& x) { return loss(q, k, x); }, v);
    } else {
      want = reference::causal_attention_backward(g, q, k, v, seq, d, of_head);
    }
    for (size_t i = 0; i < k.size(); ++i) want_k[i] += want.dk[i], want_v[i] += want.dv[i];
    expect_near(p.rows(p.dq, p.shape.q_stride, head), want.dq, bound, roundoff<T>(), "dq");
  }
  // A key collects the errors of up to seq rows.
  const double rows = std::sqrt(static_cast<double>(seq)) + 1;
  expect_near(p.rows(p.dk, p.shape.kv_stride, 0), want_k, bound * rows, roundoff<T>(), "dk");
  expect_near(p.rows(p.dv, p.shape.kv_stride, 0), want_v, bound * rows, roundoff<T>(), "dv");
}

// What a model may ask for between q k^T and the product with v.
const AttentionRule kRules[] = {
    {},
    {.window = 1},
    {.window = 7},
    {.softcap = 1.5F},
    {.dropout = {0.3F, 77}, .sample = int64_t{1} << 33},
    {.softcap = 2, .window = 60, .dropout = {0.1F, 5}, .sample = 3},
};

TYPED_TEST(Attention, BackwardAgreesWithCentralDifferences) {
  const int64_t sizes[][2] = {{1, 4}, {13, 5}, {50, 4}};
  for (const auto& [seq, d] : sizes) {
    for (const AttentionRule& rule : kRules) expect_gradients<TypeParam>(seq, d, rule, /*by_differences=*/true);
  }
}

TYPED_TEST(Attention, BackwardAgreesWithTheChainRuleAcrossBlocks) {
  const int64_t sizes[][2] = {{50, 4}, {197, 2}, {401, 20}};
  for (const auto& [seq, d] : sizes) {
    for (const AttentionRule& rule : kRules) expect_gradients<TypeParam>(seq, d, rule, /*by_differences=*/false);
  }
  expect_gradients<TypeParam>(500, 16, {.window = 192}, /*by_differences=*/false);
  expect_gradients<TypeParam>(500, 16, {.window = 300}, /*by_differences=*/false);
}

TYPED_TEST(Attention, WindowsAcrossManyBlocks) {
  for (const int64_t window : {1, 48, 191, 192, 193, 300}) {
    Problem<TypeParam> p(500, 16, 3);
    p.rule.window = window;
    p.run();
    const auto want = reference::causal_attention(p.rows(p.q, p.shape.q_stride, 0), p.rows(p.k, p.shape.kv_stride, 0),
                                                  p.rows(p.v, p.shape.kv_stride, 0), 500, 16, p.reference_rule(0));
    expect_near(p.rows(p.out, p.shape.q_stride, 0), want.out, 2e-5, roundoff<TypeParam>(), "out");
  }
}

TEST(AttentionMemory, GrowsWithTheSequenceNotItsSquare) {
  const auto floats = [](int64_t seq) { return attention_backward_workspace({seq, 64, 64, 64}); };
  EXPECT_LE(floats(65536), 2 * floats(32768));
}

TEST(AttentionScores, LargeOnesDoNotOverflow) {
  Problem<float> p(70, 16, 60);  // scores up to 60 * 60 * 4
  p.run();
  for (const auto* x : {&p.out, &p.dq, &p.dk, &p.dv}) {
    for (const float value : *x) ASSERT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace ms::kernels
