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

// Two query heads that share one key and value head, with gaps between positions, as in a [s, b, heads, d] tensor.
template <class T>
struct Problem {
  AttentionShape shape;
  double scale;
  AttentionParams params;
  std::vector<T> q, k, v, dout, out, dq, dk, dv;
  std::vector<float> lse, workspace;

  // d_v: of the heads of v and out.
  Problem(int64_t seq, int64_t d, float size, int64_t d_v)
      : shape{seq, seq, d, 2 * d + 3, d + 5, d, 0, d_v, 2 * d_v + 3, d_v + 5, d_v},
        scale(1 / std::sqrt(static_cast<double>(d))) {
    params.scale = static_cast<float>(scale);
    test::RandomValues random(static_cast<uint64_t>(seq * 1000 + d));
    q = random.make<T>(seq * shape.q_stride, size), dout = random.make<T>(seq * shape.out_stride);
    k = random.make<T>(seq * shape.kv_stride, size), v = random.make<T>(seq * shape.value_stride);
    const auto like = [](const std::vector<T>& x) { return std::vector<T>(x.size(), T(7.0F)); };
    out = like(dout), dq = like(q), dk = like(k), dv = like(v);
    lse.resize(static_cast<size_t>(2 * seq));
    workspace.assign(static_cast<size_t>(std::max(attention_workspace(shape), attention_backward_workspace(shape))),
                     std::nanf(""));  // contents are unspecified: nothing may depend on them
  }

  // With one size of all heads, as most models have it: what is 0 of the shape is filled in.
  Problem(int64_t seq, int64_t d, float size) : Problem(seq, d, size, d) {
    shape.value_d = shape.out_stride = shape.value_stride = shape.out_head_stride = 0;
  }

  int64_t out_stride() const { return shape.resolved().out_stride; }
  int64_t value_stride() const { return shape.resolved().value_stride; }
  int64_t d_v() const { return shape.resolved().value_d; }

  void run() {
    std::vector<AttentionParams> head_params;
    for (int64_t head = 0; head < 2; ++head) {
      AttentionParams of_head = params;
      of_head.dropout.key += kHeadDropoutKeyStep * static_cast<uint64_t>(head);
      attention(shape, q.data() + head * shape.d, k.data(), v.data(), of_head, out.data() + head * d_v(),
                {lse.data() + head * shape.queries}, workspace.data());
      head_params.push_back(of_head);
    }
    std::fill(workspace.begin(), workspace.end(), std::nanf(""));
    attention_backward(shape, 2, dout.data(), q.data(), k.data(), v.data(), out.data(), lse.data(), head_params.data(),
                       dq.data(), dk.data(), dv.data(), workspace.data());
  }

  // The reference's parameters for a head.
  reference::AttentionParams reference_params(int64_t head) const {
    const int64_t first = params.visible.first;
    reference::AttentionParams result{scale, params.softcap,
                                      reference::causal(first == -Visible::kAll ? 0 : static_cast<size_t>(1 - first))};
    if (params.dropout.probability == 0) return result;
    Dropout dropout = params.dropout;
    dropout.key += kHeadDropoutKeyStep * static_cast<uint64_t>(head);
    result.dropout = [dropout, sample = params.sample](size_t query, size_t key) {
      float factors[4];
      dropout_factors(dropout, sample, static_cast<int64_t>(query), static_cast<int64_t>(key / 4 * 4), 4, factors);
      return static_cast<double>(factors[key % 4]);
    };
    return result;
  }

  // Rows of d elements of a strided array, as double; of d_v elements of v and out.
  Array rows(const std::vector<T>& x, int64_t stride, int64_t head) const { return rows(x, stride, head, shape.d); }
  Array value_rows(const std::vector<T>& x, int64_t stride, int64_t head) const { return rows(x, stride, head, d_v()); }
  Array rows(const std::vector<T>& x, int64_t stride, int64_t head, int64_t d) const {
    Array result;
    for (int64_t i = 0; i < shape.queries; ++i) {
      for (int64_t e = 0; e < d; ++e) result.push_back(to_float(x[static_cast<size_t>(i * stride + head * d + e)]));
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
      const auto want = reference::attention(p.rows(p.q, p.shape.q_stride, head), p.rows(p.k, p.shape.kv_stride, 0),
                                             p.rows(p.v, p.shape.kv_stride, 0), d, p.reference_params(head));
      // A score is a sum of d products of at most 9 * scale; its error is that of its exponential. Weights sum to 1.
      const double score = (static_cast<double>(d) + 2) * roundoff<float>() * 9 * static_cast<double>(d) * p.scale / 3;
      const double bound = 2 * score + (static_cast<double>(seq) / 8 + 16) * roundoff<float>();
      expect_near(p.rows(p.out, p.shape.q_stride, head), want.out, bound, roundoff<TypeParam>(),
                  "out, seq " + std::to_string(seq) + " d " + std::to_string(d));
      const Array lse(p.lse.begin() + head * seq, p.lse.begin() + (head + 1) * seq);
      expect_near(lse, want.lse, bound, 2 * roundoff<float>(), "lse");
    }
    // The gaps between the heads' rows must not be written.
    EXPECT_EQ(p.out[static_cast<size_t>(2 * d)], TypeParam(7.0F));
    EXPECT_EQ(p.dk[static_cast<size_t>(d)], TypeParam(7.0F));
  }
}

// by_differences: compares with central differences, otherwise with the chain rule written out.
template <class T>
void expect_gradients(Problem<T> p, const AttentionParams& params, bool by_differences) {
  const int64_t seq = p.shape.queries, d = p.shape.d;
  const float scale = p.params.scale;
  p.params = params;
  p.params.scale = scale;
  p.run();
  const Array k = p.rows(p.k, p.shape.kv_stride, 0), v = p.value_rows(p.v, p.value_stride(), 0);
  Array want_k(k.size()), want_v(v.size());
  // The stored out enters as rowsum(dO * O): its rounding is an error of dS, multiplied by |q| and |k| <= 1.5.
  const double stored = roundoff<T>() * static_cast<double>(p.d_v());
  const double bound = 3 * stored + (static_cast<double>(seq) + 32) * 4 * roundoff<float>() + 1e-7;
  for (int64_t head = 0; head < 2; ++head) {
    const reference::AttentionParams of_head = p.reference_params(head);
    const Array q = p.rows(p.q, p.shape.q_stride, head), g = p.value_rows(p.dout, p.out_stride(), head);
    reference::AttentionGradients want;
    if (by_differences) {
      const auto loss = [&](const Array& a, const Array& b, const Array& c) {
        return reference::dot(reference::attention(a, b, c, d, of_head).out, g);
      };
      want.dq = reference::numeric_gradient([&](const Array& x) { return loss(x, k, v); }, q);
      want.dk = reference::numeric_gradient([&](const Array& x) { return loss(q, x, v); }, k);
      want.dv = reference::numeric_gradient([&](const Array& x) { return loss(q, k, x); }, v);
    } else {
      want = reference::attention_backward(g, q, k, v, d, of_head);
    }
    for (size_t i = 0; i < k.size(); ++i) want_k[i] += want.dk[i];
    for (size_t i = 0; i < v.size(); ++i) want_v[i] += want.dv[i];
    expect_near(p.rows(p.dq, p.shape.q_stride, head), want.dq, bound, roundoff<T>(), "dq");
  }
  // A key accumulates the errors of up to seq rows.
  const double rows = std::sqrt(static_cast<double>(seq)) + 1;
  expect_near(p.rows(p.dk, p.shape.kv_stride, 0), want_k, bound * rows, roundoff<T>(), "dk");
  expect_near(p.value_rows(p.dv, p.value_stride(), 0), want_v, bound * rows, roundoff<T>(), "dv");
}

// Options that a model may apply between q k^T and the product with v.
const AttentionParams kParams[] = {
    {},
    {.visible = {.first = 0}},
    {.visible = {.first = -6}},
    {.softcap = 1.5F},
    {.dropout = {0.3F, 77}, .sample = int64_t{1} << 33},
    {.softcap = 2, .visible = {.first = -59}, .dropout = {0.1F, 5}, .sample = 3},
};

TYPED_TEST(Attention, BackwardAgreesWithCentralDifferences) {
  const int64_t sizes[][2] = {{1, 4}, {13, 5}, {50, 4}};
  for (const auto& [seq, d] : sizes) {
    for (const AttentionParams& params : kParams)
      expect_gradients(Problem<TypeParam>(seq, d, 1.5F), params, /*by_differences=*/true);
  }
}

// A bias with one row per query, or one row for all, shared by both heads: its gradient sums over the scores that use
// it, times factor, and is added to the previous contents.
TYPED_TEST(Attention, BiasGradientAgreesWithCentralDifferences) {
  for (const int64_t row_stride : {0, 17}) {
    for (AttentionParams params : kParams) {
      constexpr int64_t kSeq = 17, kD = 5;
      const Array values =
          reference::to_double(test::RandomValues(9).make<float>(row_stride == 0 ? kSeq : kSeq * kSeq, 1.5F));
      const std::vector<float> stored(values.begin(), values.end());
      std::vector<float> gradient(stored.size(), 3.0F);
      Problem<TypeParam> p(kSeq, kD, 1.5F);
      params.scale = p.params.scale;
      params.bias.values = stored.data(), params.bias.row_stride = row_stride, params.bias.factor = 0.7F;
      params.bias.gradient = gradient.data();
      p.params = params;
      p.run();
      const Array k = p.rows(p.k, p.shape.kv_stride, 0), v = p.rows(p.v, p.shape.kv_stride, 0);
      Array want(values.size(), 3.0);
      for (int64_t head = 0; head < 2; ++head) {
        const Array q = p.rows(p.q, p.shape.q_stride, head), g = p.rows(p.dout, p.shape.q_stride, head);
        reference::AttentionParams of_head = p.reference_params(head);
        const Array of_this = reference::numeric_gradient(
            [&](const Array& x) {
              of_head.bias = [&](size_t i, size_t j) {
                return static_cast<double>(0.7F) * x[i * static_cast<size_t>(row_stride) + j];
              };
              return reference::dot(reference::attention(q, k, v, kD, of_head).out, g);
            },
            values);
        for (size_t i = 0; i < want.size(); ++i) want[i] += of_this[i];
      }
      // For each head and row that shares a value: rowsum(dO * O) of the stored out, and the probability's error.
      const double rows = 2 * (row_stride == 0 ? std::sqrt(static_cast<double>(kSeq)) + 1 : 1);
      const double bound = rows * (roundoff<TypeParam>() * kD + (kSeq + 32) * 4 * roundoff<float>());
      expect_near(reference::to_double(gradient), want, bound, 2 * roundoff<float>(), "dbias");
    }
  }
}

TYPED_TEST(Attention, BackwardAgreesWithTheChainRuleAcrossBlocks) {
  const int64_t sizes[][2] = {{50, 4}, {197, 2}, {401, 20}};
  for (const auto& [seq, d] : sizes) {
    for (const AttentionParams& params : kParams)
      expect_gradients(Problem<TypeParam>(seq, d, 1.5F), params, /*by_differences=*/false);
  }
  expect_gradients(Problem<TypeParam>(500, 16, 1.5F), {.visible = {.first = -191}}, /*by_differences=*/false);
  expect_gradients(Problem<TypeParam>(500, 16, 1.5F), {.visible = {.first = -299}}, /*by_differences=*/false);
}

// Latent attention: heads of v and out are smaller, or larger, than those of q and k.
TYPED_TEST(Attention, HeadsOfValuesMayHaveAnotherSize) {
  const int64_t small[][3] = {{13, 6, 4}, {21, 3, 9}}, larger[][3] = {{197, 24, 16}, {401, 20, 33}, {64, 5, 70}};
  for (const auto& [seq, d, d_v] : small) {
    for (const AttentionParams& params : kParams)
      expect_gradients(Problem<TypeParam>(seq, d, 1.5F, d_v), params, /*by_differences=*/true);
  }
  for (const auto& [seq, d, d_v] : larger) {
    Problem<TypeParam> p(seq, d, 3, d_v);
    p.run();
    for (int64_t head = 0; head < 2; ++head) {
      const auto want = reference::attention(p.rows(p.q, p.shape.q_stride, head), p.rows(p.k, p.shape.kv_stride, 0),
                                             p.value_rows(p.v, p.value_stride(), 0), d, p.reference_params(head));
      expect_near(p.value_rows(p.out, p.out_stride(), head), want.out, 5e-5, roundoff<TypeParam>(), "out");
    }
    EXPECT_EQ(p.out[static_cast<size_t>(2 * d_v)], TypeParam(7.0F));  // gaps between rows stay as they are
    EXPECT_EQ(p.dv[static_cast<size_t>(d_v)], TypeParam(7.0F));
    expect_gradients(Problem<TypeParam>(seq, d, 1.5F, d_v), kParams[0], /*by_differences=*/false);
  }
}

TYPED_TEST(Attention, SlidingWindowsAgreeAcrossManyBlocks) {
  for (const int64_t window : {1, 48, 191, 192, 193, 300}) {
    Problem<TypeParam> p(500, 16, 3);
    p.params.visible.first = 1 - window;
    p.run();
    const auto want = reference::attention(p.rows(p.q, p.shape.q_stride, 0), p.rows(p.k, p.shape.kv_stride, 0),
                                           p.rows(p.v, p.shape.kv_stride, 0), 16, p.reference_params(0));
    expect_near(p.rows(p.out, p.shape.q_stride, 0), want.out, 2e-5, roundoff<TypeParam>(), "out");
  }
}

// Every way to hide keys and to add to scores, with different numbers of keys and queries.
struct Masked {
  int64_t queries, keys;
  Visible visible;
  bool bias = false, mask = false;
  float slope = 0;
  bool root = false;
};

const Masked kMasked[] = {
    {40, 40, {.last = Visible::kAll}},
    {30, 71, {.last = 41}},              // causal, the last query aligned with the last key
    {71, 30, {.last = -41}},             // the first 41 queries see no key
    {50, 50, {.first = -5, .last = 3}},  // a band
    {50, 50, {.first = 3, .last = 9}},   // later keys only
    {60, 60, {.last = 0, .prefix = 17}},
    {20, 60, {.last = -70, .prefix = 5}},  // the prefix only
    {33, 33, {.last = Visible::kAll}, true},
    {33, 45, {.last = 12}, false, false, 0.3F},
    {33, 45, {.last = 12}, true, false, 0.3F, true},
    {41, 41, {.last = Visible::kAll}, true, true, 0.1F},
    {200, 420, {.first = -150, .last = 230}, true, true},  // across blocks
    {420, 200, {.last = -220, .prefix = 195}, false, true, 0.01F},
    {0, 5, {}},
    {5, 0, {}},
};

TYPED_TEST(Attention, MasksAndBiasesAgreeWithTheDefinition) {
  constexpr int64_t kD = 12;
  for (const Masked& c : kMasked) {
    const AttentionShape shape{c.queries, c.keys, kD, kD, kD, kD};
    test::RandomValues random(static_cast<uint64_t>(c.queries * 1000 + c.keys));
    const auto q = random.make<TypeParam>(c.queries * kD, 1.5F), dout = random.make<TypeParam>(c.queries * kD);
    const auto k = random.make<TypeParam>(c.keys * kD, 1.5F), v = random.make<TypeParam>(c.keys * kD);
    const auto values = random.make(c.queries * c.keys, 2);
    std::vector<uint8_t> mask;
    for (const int32_t bit : random.integers(c.queries * c.keys, 0, 2)) mask.push_back(bit == 0 ? 1 : 0);
    for (int64_t j = 0; j < c.keys && c.queries > 2; ++j) mask[static_cast<size_t>(2 * c.keys + j)] = 1;  // sees no key
    AttentionParams params{.scale = 0.4F, .visible = c.visible};
    if (c.bias) params.bias.values = values.data(), params.bias.row_stride = c.keys, params.bias.factor = 0.5F;
    if (c.mask) params.bias.mask = mask.data(), params.bias.mask_stride = c.keys;
    params.bias.slope = c.slope, params.bias.root = c.root, params.bias.distance = 7;

    const auto keys = static_cast<size_t>(c.keys);
    reference::AttentionParams want_params{params.scale};
    want_params.sees = [&](size_t i, size_t j) {
      const int64_t apart = static_cast<int64_t>(j) - static_cast<int64_t>(i);
      if (c.mask && mask[i * keys + j] != 0) return false;
      return (apart >= c.visible.first && apart <= c.visible.last) || static_cast<int64_t>(j) < c.visible.prefix;
    };
    want_params.bias = [&](size_t i, size_t j) {
      const double apart = std::abs(static_cast<double>(i) + 7 - static_cast<double>(j));
      return (c.bias ? 0.5 * values[i * keys + j] : 0.0) - c.slope * (c.root ? std::sqrt(apart) : apart);
    };
    std::vector<TypeParam> out(q.size(), TypeParam(7.0F)), dq = out, dk(k.size(), TypeParam(7.0F)), dv = dk;
    std::vector<float> lse(static_cast<size_t>(c.queries)), max = lse, sum = lse;
    std::vector<float> workspace(
        static_cast<size_t>(std::max(attention_workspace(shape), attention_backward_workspace(shape))), std::nanf(""));
    attention(shape, q.data(), k.data(), v.data(), params, out.data(), {lse.data(), max.data(), sum.data()},
              workspace.data());
    std::fill(workspace.begin(), workspace.end(), std::nanf(""));
    attention_backward(shape, 1, dout.data(), q.data(), k.data(), v.data(), out.data(), lse.data(), &params, dq.data(),
                       dk.data(), dv.data(), workspace.data());

    using reference::to_double;
    const std::string what = std::to_string(c.queries) + " x " + std::to_string(c.keys);
    const auto want = reference::attention(to_double(q), to_double(k), to_double(v), kD, want_params);
    expect_near(to_double(out), want.out, 5e-5, roundoff<TypeParam>(), "out of " + what);
    for (size_t i = 0; i < lse.size(); ++i) {
      if (want.lse[i] == -INFINITY) {
        ASSERT_TRUE(lse[i] == -INFINITY && max[i] == -INFINITY && sum[i] == 0) << what << " row " << i;
      } else {
        ASSERT_NEAR(lse[i], want.lse[i], 5e-5) << what << " row " << i;
        ASSERT_NEAR(max[i] + std::log(sum[i]), lse[i], 1e-5) << what << " row " << i;
      }
    }
    const auto gradients =
        reference::attention_backward(to_double(dout), to_double(q), to_double(k), to_double(v), kD, want_params);
    const double bound = 2e-4 + 3 * kD * roundoff<TypeParam>();
    expect_near(to_double(dq), gradients.dq, bound, roundoff<TypeParam>(), "dq of " + what);
    expect_near(to_double(dk), gradients.dk, 8 * bound, roundoff<TypeParam>(), "dk of " + what);
    expect_near(to_double(dv), gradients.dv, 8 * bound, roundoff<TypeParam>(), "dv of " + what);
  }
}

// Spans of queries and runs of keys, drawn, some across blocks and some of one number, of other positions.
struct Lists {
  std::vector<QuerySpan> spans;
  std::vector<KeyRun> runs;
  bool is_causal;

  Lists(int32_t queries, int32_t keys, bool causal, uint64_t seed) : is_causal(causal) {
    const auto draws = test::RandomValues(seed).integers(4096, 0, 1 << 20);
    size_t next = 0;
    const auto draw = [&](int32_t below) { return draws[next++ % draws.size()] % below; };
    int32_t position = draw(60);
    for (int32_t row = 0; row < queries;) {
      const int32_t count = std::min<int32_t>(queries - row, 1 + draw(draw(3) == 0 ? 250 : 20));
      int32_t of_key = draw(9);
      for (int32_t key = draw(40); key < keys && draw(6) > 0;) {
        const int32_t seen = std::min<int32_t>(keys - key, 1 + draw(draw(3) == 0 ? 300 : 9));
        runs.push_back({key, seen, key + of_key});
        key += seen + draw(30);
        of_key += draw(9);
      }
      spans.push_back({row, count, position, static_cast<int32_t>(runs.size())});
      row += count;
      position += count + draw(12);
    }
  }
  VisibleRuns view() const { return {spans.data(), runs.data(), static_cast<int64_t>(spans.size()), is_causal}; }
  int64_t position_of_query(size_t i) const {
    for (const QuerySpan& span : spans)
      if (static_cast<int64_t>(i) < span.first + span.count)
        return static_cast<int64_t>(i) - span.first + span.position;
    return -1;
  }
  // -1: the query does not see the key.
  int64_t position_of_key(size_t i, size_t j) const {
    size_t run = 0;
    for (const QuerySpan& span : spans) {
      const bool is_of = static_cast<int64_t>(i) < span.first + span.count;
      for (; run < static_cast<size_t>(span.runs_end); ++run) {
        const KeyRun& of = runs[run];
        const int64_t at = static_cast<int64_t>(j) - of.first;
        if (!is_of || at < 0 || at >= of.count) continue;
        const int64_t position = of.position + at;
        return is_causal && position > position_of_query(i) ? -1 : position;
      }
      if (is_of) break;
    }
    return -1;
  }
};

TYPED_TEST(Attention, RunsAgreeWithTheDefinition) {
  constexpr int64_t kQueries = 410, kKeys = 620, kD = 12;
  const AttentionShape shape{kQueries, kKeys, kD, kD, kD, kD};
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    for (const bool is_causal : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (is_causal ? ", causal" : ""));
      const Lists lists(kQueries, kKeys, is_causal, seed);
      test::RandomValues random(seed + 70);
      const auto q = random.make<TypeParam>(kQueries * kD, 1.5F), dout = random.make<TypeParam>(kQueries * kD);
      const auto k = random.make<TypeParam>(kKeys * kD, 1.5F), v = random.make<TypeParam>(kKeys * kD);
      AttentionParams params{.scale = 0.4F, .runs = lists.view()};
      if (seed == 2) params.softcap = 2;
      if (seed == 3) params.bias.slope = 0.02F;
      if (seed == 4) params.dropout = {0.3F, 77}, params.sample = 5;
      reference::AttentionParams want_params{params.scale, params.softcap};
      want_params.sees = [&](size_t i, size_t j) { return lists.position_of_key(i, j) >= 0; };
      if (seed == 3) {
        want_params.bias = [&](size_t i, size_t j) {
          return -0.02F * std::abs(static_cast<double>(lists.position_of_query(i) - lists.position_of_key(i, j)));
        };
      }
      if (seed == 4) {
        want_params.dropout = [&](size_t i, size_t j) {
          const int64_t column = lists.position_of_key(i, j);
          if (column < 0) return 1.0;
          float factors[4];
          dropout_factors(params.dropout, params.sample, lists.position_of_query(i), column / 4 * 4, 4, factors);
          return static_cast<double>(factors[column % 4]);
        };
      }
      std::vector<TypeParam> out(q.size(), TypeParam(7.0F)), dq = out, dk(k.size(), TypeParam(7.0F)), dv = dk;
      std::vector<float> lse(static_cast<size_t>(kQueries));
      std::vector<float> workspace(
          static_cast<size_t>(std::max(attention_workspace(shape), attention_backward_workspace(shape))),
          std::nanf(""));
      attention(shape, q.data(), k.data(), v.data(), params, out.data(), {lse.data()}, workspace.data());
      std::fill(workspace.begin(), workspace.end(), std::nanf(""));
      attention_backward(shape, 1, dout.data(), q.data(), k.data(), v.data(), out.data(), lse.data(), &params,
                         dq.data(), dk.data(), dv.data(), workspace.data());
      using reference::to_double;
      const auto want = reference::attention(to_double(q), to_double(k), to_double(v), kD, want_params);
      expect_near(to_double(out), want.out, 5e-5, roundoff<TypeParam>(), "out");
      for (size_t i = 0; i < lse.size(); ++i) {
        if (want.lse[i] == -INFINITY) {
          ASSERT_EQ(lse[i], -INFINITY) << "row " << i;
        } else {
          ASSERT_NEAR(lse[i], want.lse[i], 5e-5) << "row " << i;
        }
      }
      const auto gradients =
          reference::attention_backward(to_double(dout), to_double(q), to_double(k), to_double(v), kD, want_params);
      const double bound = 2e-4 + 3 * kD * roundoff<TypeParam>();
      expect_near(to_double(dq), gradients.dq, bound, roundoff<TypeParam>(), "dq");
      expect_near(to_double(dk), gradients.dk, 16 * bound, roundoff<TypeParam>(), "dk");
      expect_near(to_double(dv), gradients.dv, 16 * bound, roundoff<TypeParam>(), "dv");
    }
  }
}

// One span that sees one run of all keys is what a causal mask says: the same blocks, bit for bit.
TYPED_TEST(Attention, OneRunOfAllKeysIsCausal) {
  Problem<TypeParam> causal(401, 20, 1.5F), listed(401, 20, 1.5F);
  const QuerySpan span{0, 401, 0, 1};
  const KeyRun run{0, 401, 0};
  listed.params.runs = {&span, &run, 1, true};
  causal.run();
  listed.run();
  const auto same = [](const std::vector<TypeParam>& x, const std::vector<TypeParam>& y) {
    return std::equal(x.begin(), x.end(), y.begin(),
                      [](TypeParam a, TypeParam b) { return to_float(a) == to_float(b); });
  };
  EXPECT_TRUE(same(causal.out, listed.out) && same(causal.dq, listed.dq) && same(causal.dk, listed.dk) &&
              same(causal.dv, listed.dv));
  EXPECT_EQ(causal.lse, listed.lse);
}

TEST(AttentionMemory, WorkspaceGrowsLinearlyWithTheSequence) {
  const auto floats = [](int64_t seq) { return attention_backward_workspace({seq, seq, 64, 64, 64, 64}); };
  EXPECT_LE(floats(65536), 2 * floats(32768));
}

TEST(AttentionScores, LargeScoresDoNotOverflow) {
  Problem<float> p(70, 16, 60);  // scores up to 60 * 60 * 4
  p.run();
  for (const auto* x : {&p.out, &p.dq, &p.dk, &p.dv}) {
    for (const float value : *x) ASSERT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace ms::kernels
