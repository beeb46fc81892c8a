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
  std::vector<T> q, k, v, dout, out, dq, dk, dv;
  std::vector<float> lse, workspace;

  Problem(int64_t seq, int64_t d, float size)
      : shape{seq, d, 2 * d + 3, d + 5}, scale(1 / std::sqrt(static_cast<double>(d))) {
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
    const auto s = static_cast<float>(scale);
    for (int64_t head = 0; head < 2; ++head) {
      causal_attention(shape, q.data() + head * shape.d, k.data(), v.data(), s, out.data() + head * shape.d,
                       lse.data() + head * shape.seq, workspace.data());
    }
    std::fill(workspace.begin(), workspace.end(), std::nanf(""));
    causal_attention_backward(shape, 2, dout.data(), q.data(), k.data(), v.data(), out.data(), lse.data(), s, dq.data(),
                              dk.data(), dv.data(), workspace.data());
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
                                      p.rows(p.v, p.shape.kv_stride, 0), seq, d, p.scale);
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

TYPED_TEST(Attention, BackwardAgreesWithCentralDifferences) {
  const int64_t sizes[][2] = {{1, 4}, {13, 5}, {50, 4}, {197, 2}};
  for (const auto& [seq, d] : sizes) {
    Problem<TypeParam> p(seq, d, 1.5F);
    p.run();
    const Array k = p.rows(p.k, p.shape.kv_stride, 0), v = p.rows(p.v, p.shape.kv_stride, 0);
    Array want_k(k.size()), want_v(v.size());
    // The stored out enters as rowsum(dO * O): its rounding is an error of dS, spread by |q| and |k| <= 1.5.
    const double stored = roundoff<TypeParam>() * static_cast<double>(d);
    const double bound = 3 * stored + (static_cast<double>(seq) + 32) * 4 * roundoff<float>() + 1e-7;
    const auto loss = [&](const Array& a, const Array& b, const Array& c, const Array& g) {
      return reference::dot(reference::causal_attention(a, b, c, seq, d, p.scale).out, g);
    };
    for (int64_t head = 0; head < 2; ++head) {
      const Array q = p.rows(p.q, p.shape.q_stride, head), g = p.rows(p.dout, p.shape.q_stride, head);
      const Array want_q = reference::numeric_gradient([&](const Array& x) { return loss(x, k, v, g); }, q);
      const Array part_k = reference::numeric_gradient([&](const Array& x) { return loss(q, x, v, g); }, k);
      const Array part_v = reference::numeric_gradient([&](const Array& x) { return loss(q, k, x, g); }, v);
      for (size_t i = 0; i < k.size(); ++i) want_k[i] += part_k[i], want_v[i] += part_v[i];
      expect_near(p.rows(p.dq, p.shape.q_stride, head), want_q, bound, roundoff<TypeParam>(), "dq");
    }
    // A key collects the errors of up to seq rows.
    const double rows = std::sqrt(static_cast<double>(seq)) + 1;
    expect_near(p.rows(p.dk, p.shape.kv_stride, 0), want_k, bound * rows, roundoff<TypeParam>(), "dk");
    expect_near(p.rows(p.dv, p.shape.kv_stride, 0), want_v, bound * rows, roundoff<TypeParam>(), "dv");
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
