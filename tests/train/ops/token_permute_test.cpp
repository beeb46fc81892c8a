#include "train/ops/token_permute.h"

#include "core/error.h"
#include "tests/reference/token_permute.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::Array;
using reference::kFp32;
using reference::roundoff;

template <class T>
class TokenPermute : public ::testing::Test {};
TYPED_TEST_SUITE(TokenPermute, StorageTypes);

// A routing in two forms: the arguments of the operators, and the permutation matrix of the definition.
struct Routing {
  core::Tensor indices;
  std::vector<int32_t> flat;
  int64_t tokens, per_token, rows;
  bool padded;
  Array matrix;                     // [rows, tokens]
  std::vector<size_t> slot_of_row;  // [rows]

  std::optional<int64_t> kept() const {
    return padded || rows == static_cast<int64_t>(flat.size()) ? std::nullopt : std::optional<int64_t>(rows);
  }
  // Probabilities by slot -> by row.
  Array of_rows(const Array& of_slots) const {
    Array result;
    for (const size_t slot : slot_of_row) result.push_back(of_slots[slot]);
    return result;
  }
};

Routing dropless(Ops& ops, int64_t tokens, int64_t per_token, int32_t experts, int64_t dropped) {
  Routing r{{}, test::RandomValues(7).integers(tokens * per_token, 0, experts - 1), tokens, per_token, 0, false, {},
            {}};
  r.indices = ops.tensor(r.flat, per_token == 1 ? core::Dims{tokens} : core::Dims{tokens, per_token});
  r.slot_of_row = reference::stable_argsort(r.flat);
  r.slot_of_row.resize(r.slot_of_row.size() - static_cast<size_t>(dropped));
  r.rows = static_cast<int64_t>(r.slot_of_row.size());
  std::vector<size_t> token_of_row;
  for (const size_t slot : r.slot_of_row) token_of_row.push_back(slot / static_cast<size_t>(per_token));
  r.matrix = reference::one_hot(token_of_row, static_cast<size_t>(tokens));
  return r;
}

Routing padded(Ops& ops, int64_t tokens, int64_t experts, int64_t capacity) {
  const int64_t slots = experts * capacity;
  Routing r{{}, test::RandomValues(8).integers(slots, 0, static_cast<int32_t>(tokens) - 1), tokens, 0, slots, true, {},
            {}};
  r.indices = ops.tensor(r.flat, {experts, capacity});
  std::vector<size_t> token_of_row;
  for (size_t slot = 0; slot < r.flat.size(); ++slot) {
    r.slot_of_row.push_back(slot);
    token_of_row.push_back(static_cast<size_t>(r.flat[slot]));
  }
  r.matrix = reference::one_hot(token_of_row, static_cast<size_t>(tokens));
  return r;
}

std::vector<Routing> routings(Ops& ops) {
  std::vector<Routing> all;
  all.push_back(dropless(ops, 1, 1, 1, 0));
  all.push_back(dropless(ops, 37, 1, 5, 0));
  all.push_back(dropless(ops, 23, 3, 4, 0));
  all.push_back(dropless(ops, 23, 3, 4, 30));  // some tokens keep none of their slots
  all.push_back(dropless(ops, 5, 2, 64, 10));  // nothing is kept
  all.push_back(padded(ops, 19, 3, 11));
  return all;
}

TYPED_TEST(TokenPermute, AgreesWithTheMatricesOfTheDefinition) {
  for (const int64_t h : {1, 17, 64}) {
    Ops ops(2);
    for (const Routing& r : routings(ops)) {
      const auto width = static_cast<size_t>(h), num_tokens = static_cast<size_t>(r.tokens);
      const auto x = ops.random<TypeParam>({r.tokens, h}, 1);
      const auto seen = token_permute(ops.context, x, r.indices, r.kept(), r.padded);
      expect_near(seen.tokens, reference::permute(r.matrix, num_tokens, array(x), width), 0, 0, "permuted");
      EXPECT_EQ(seen.sorted_indices.shape(), r.indices.shape());

      const auto dpermuted = ops.random<TypeParam>({r.rows, h}, 2);
      const Array ones(r.slot_of_row.size(), 1.0);
      // A sum of at most 33 slots per token, each at most 1.
      expect_near(token_permute_backward(ops.context, dpermuted, seen.sorted_indices, r.tokens, r.padded),
                  reference::unpermute(r.matrix, num_tokens, ones, array(dpermuted), width), 33 * 33 * kFp32,
                  roundoff<TypeParam>(), "dtokens");

      const auto probs = ops.random<float>(r.indices.shape(), 3);
      const core::TensorView p = probs;
      const auto y = token_unpermute(ops.context, dpermuted, seen.sorted_indices, &p, r.tokens, r.padded);
      expect_near(y, reference::unpermute(r.matrix, num_tokens, r.of_rows(array(probs)), array(dpermuted), width),
                  33 * 33 * kFp32, roundoff<TypeParam>(), "unpermuted");
    }
  }
}

TYPED_TEST(TokenPermute, GradientsAgreeWithCentralDifferences) {
  constexpr int64_t kH = 5;
  Ops ops(2);
  for (const Routing& r : routings(ops)) {
    const auto num_tokens = static_cast<size_t>(r.tokens);
    const auto permuted = ops.random<TypeParam>({r.rows, kH}, 1), dy = ops.random<TypeParam>({r.tokens, kH}, 2);
    const auto probs = ops.random<float>(r.indices.shape(), 3);
    const core::TensorView p = probs;
    const auto order = token_permute(ops.context, dy, r.indices, r.kept(), r.padded);
    const auto loss = [&](const Array& rows, const Array& of_slots) {
      return reference::dot(reference::unpermute(r.matrix, num_tokens, r.of_rows(of_slots), rows, kH), array(dy));
    };
    const auto seen = token_unpermute_backward(ops.context, dy, permuted, order.sorted_indices, &p, r.padded);
    expect_near(seen.dpermuted,
                reference::numeric_gradient([&](const Array& v) { return loss(v, array(probs)); }, array(permuted)),
                1e-7, 2 * roundoff<TypeParam>(), "dpermuted");
    expect_near(seen.dprobs,
                reference::numeric_gradient([&](const Array& v) { return loss(array(permuted), v); }, array(probs)),
                1e-7 + 2 * kH * kFp32, 0, "dprobs");
    const auto plain = token_unpermute_backward(ops.context, dy, permuted, order.sorted_indices, nullptr, r.padded);
    EXPECT_FALSE(plain.dprobs.defined());
    EXPECT_TRUE(same_bytes(plain.dpermuted, order.tokens)) << "without probabilities it is permute again";
  }
}

// <permute(x), y> = <x, permute^T(y)>, and unpermute without probabilities is that transpose.
TEST(TokenPermuteAdjoint, PermuteAndUnpermuteAreEachOthersTranspose) {
  Ops ops(3);
  for (const Routing& r : routings(ops)) {
    const auto x = ops.random<float>({r.tokens, 8}, 1), y = ops.random<float>({r.rows, 8}, 2);
    const auto forward = token_permute(ops.context, x, r.indices, r.kept(), r.padded);
    const auto back = token_unpermute(ops.context, y, forward.sorted_indices, nullptr, r.tokens, r.padded);
    EXPECT_NEAR(reference::dot(array(forward.tokens), array(y)), reference::dot(array(x), array(back)),
                static_cast<double>(r.rows) * 8 * 4 * kFp32 + 1e-12);
    EXPECT_TRUE(same_bytes(back, token_permute_backward(ops.context, y, forward.sorted_indices, r.tokens, r.padded)));
  }
}

TEST(TokenPermuteAdjoint, RoundTripScalesBySumOfProbabilities) {
  Ops ops(2);
  const Routing r = dropless(ops, 50, 4, 8, 0);
  const auto x = ops.random<float>({50, 24}, 1), probs = ops.random<float>({50, 4}, 2);
  const core::TensorView p = probs;
  const auto there = token_permute(ops.context, x, r.indices);
  Array want = array(x);
  for (size_t i = 0; i < want.size(); ++i) {
    double sum = 0;
    for (size_t slot = 0; slot < 4; ++slot) sum += array(probs)[i / 24 * 4 + slot];
    want[i] *= sum;
  }
  expect_near(token_unpermute(ops.context, there.tokens, there.sorted_indices, &p, 50), want, 32 * kFp32, 0, "y");
}

TYPED_TEST(TokenPermute, BitsDoNotDependOnThreads) {
  std::vector<Array> results;
  for (const int threads : {1, 2, 3}) {
    Ops ops(threads);
    Array all;
    for (const Routing& r : routings(ops)) {
      const auto x = ops.random<TypeParam>({r.tokens, 40}, 1), rows = ops.random<TypeParam>({r.rows, 40}, 2);
      const auto probs = ops.random<float>(r.indices.shape(), 3);
      const core::TensorView p = probs;
      const auto there = token_permute(ops.context, x, r.indices, r.kept(), r.padded);
      const auto y = token_unpermute(ops.context, rows, there.sorted_indices, &p, r.tokens, r.padded);
      const auto g = token_unpermute_backward(ops.context, x, rows, there.sorted_indices, &p, r.padded);
      for (const Array& part : {array(there.tokens), array(y), array(g.dpermuted), array(g.dprobs)}) {
        all.insert(all.end(), part.begin(), part.end());
      }
    }
    results.push_back(all);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(TokenPermuteContract, AcceptsNoTokensAndRefusesInvalidInput) {
  Ops ops;
  const auto none = ops.random<float>({0, 4}, 1);
  const auto nowhere = token_permute(ops.context, none, ops.tensor<int32_t>({}, {0, 2}));
  EXPECT_EQ(nowhere.tokens.shape(), (core::Dims{0, 4}));
  EXPECT_EQ(token_unpermute(ops.context, nowhere.tokens, nowhere.sorted_indices, nullptr, 0).size(), 0);

  const auto x = ops.random<float>({2, 4}, 1);
  const auto experts = ops.tensor<int32_t>({1, 0}, {2});
  EXPECT_THROW(token_permute(ops.context, x, ops.tensor<int32_t>({0, -1}, {2})), core::Error);
  EXPECT_THROW(token_permute(ops.context, x, ops.tensor<int32_t>({0, 65536}, {2})), core::Error);
  EXPECT_THROW(token_permute(ops.context, x, ops.tensor<int32_t>({0, 1, 2}, {3})), core::Error) << "3 slots, 2 tokens";
  EXPECT_THROW(token_permute(ops.context, x, experts, 3), core::Error);
  EXPECT_THROW(token_permute(ops.context, x, ops.tensor<int32_t>({0, 2}, {1, 2}), {}, true), core::Error);
  EXPECT_THROW(token_permute(ops.context, x, experts, 1, true), core::Error);
  const auto probs = ops.random<float>({3}, 1);
  const core::TensorView p = probs;
  EXPECT_THROW(token_unpermute(ops.context, x, experts, &p, 2), core::Error);
}

}  // namespace
}  // namespace ms::ops
