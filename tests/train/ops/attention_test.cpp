#include "train/ops/attention.h"

#include "core/error.h"
#include "tests/reference/attention.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::Array;
using reference::kFp32;
using reference::roundoff;

// Head `head` of batch element `batch` of x [s, b, heads, d], as [s, d].
Array head_of(const core::TensorView& x, int64_t batch, int64_t head) {
  const Array all = array(x);
  Array result;
  for (int64_t s = 0; s < x.dim(0); ++s) {
    const auto begin = all.begin() + ((s * x.dim(1) + batch) * x.dim(2) + head) * x.dim(3);
    result.insert(result.end(), begin, begin + x.dim(3));
  }
  return result;
}

void expect_head(const core::TensorView& x, int64_t batch, int64_t head, const Array& want, double absolute,
                 double relative, const char* what) {
  const Array got = head_of(x, batch, head);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], absolute + relative * std::abs(want[i]))
        << what << " of batch " << batch << " head " << head << " at " << i;
  }
}

template <class T>
class Attention : public ::testing::Test {};
TYPED_TEST_SUITE(Attention, StorageTypes);

TYPED_TEST(Attention, SplitsAndMergesGroupsAsMegatronPacksThem) {
  constexpr int64_t kSeq = 3, kBatch = 2, kHeads = 4, kGroups = 2, kD = 5, kRow = kGroups * (kHeads / kGroups + 2) * kD;
  Ops ops(2);
  const auto packed = ops.random<TypeParam>({kSeq, kBatch, kRow}, 1);
  const auto qkv = split_qkv(ops.context, packed, kHeads, kGroups, kD);
  EXPECT_EQ(qkv.q.shape(), (core::Dims{kSeq, kBatch, kHeads, kD}));
  EXPECT_EQ(qkv.v.shape(), (core::Dims{kSeq, kBatch, kGroups, kD}));
  const Array all = array(packed), q = array(qkv.q), k = array(qkv.k), v = array(qkv.v);
  for (int64_t row = 0; row < kSeq * kBatch; ++row) {
    for (int64_t group = 0; group < kGroups; ++group) {
      for (int64_t e = 0; e < 2 * kD; ++e) {
        ASSERT_EQ(q[static_cast<size_t>((row * kGroups + group) * 2 * kD + e)],
                  all[static_cast<size_t>(row * kRow + group * 4 * kD + e)]);
      }
      for (int64_t e = 0; e < kD; ++e) {
        const auto at = static_cast<size_t>((row * kGroups + group) * kD + e);
        ASSERT_EQ(k[at], all[static_cast<size_t>(row * kRow + group * 4 * kD + 2 * kD + e)]);
        ASSERT_EQ(v[at], all[static_cast<size_t>(row * kRow + group * 4 * kD + 3 * kD + e)]);
      }
    }
  }
  EXPECT_TRUE(same_bytes(merge_qkv(ops.context, qkv.q, qkv.k, qkv.v), packed));
}

TYPED_TEST(Attention, SplitsAndMergesGatesBehindTheQueriesOfTheirGroup) {
  constexpr int64_t kSeq = 3, kBatch = 2, kHeads = 4, kGroups = 2, kD = 5, kQuery = kHeads / kGroups * kD;
  constexpr int64_t kRow = kGroups * (2 * kQuery + 2 * kD);
  Ops ops(2);
  const auto packed = ops.random<TypeParam>({kSeq, kBatch, kRow}, 1);
  const auto qkv = split_qkv(ops.context, packed, kHeads, kGroups, kD, /*has_gate=*/true);
  EXPECT_EQ(qkv.gate.shape(), (core::Dims{kSeq, kBatch, kHeads, kD}));
  const Array all = array(packed);
  const auto expect_part = [&](const core::Tensor& part, int64_t size, int64_t begin) {
    const Array seen = array(part);
    for (int64_t i = 0; i < part.size(); ++i) {
      const int64_t group = i / size;  // of all positions and samples
      ASSERT_EQ(seen[static_cast<size_t>(i)], all[static_cast<size_t>(group * (kRow / kGroups) + begin + i % size)]);
    }
  };
  expect_part(qkv.q, kQuery, 0);
  expect_part(qkv.gate, kQuery, kQuery);
  expect_part(qkv.k, kD, 2 * kQuery);
  expect_part(qkv.v, kD, 2 * kQuery + kD);
  EXPECT_TRUE(same_bytes(merge_qkv(ops.context, qkv.q, qkv.k, qkv.v, &qkv.gate.view()), packed));
}

// Each document of packed samples as if it were alone, to the bit; nothing is computed between documents.
TYPED_TEST(Attention, PackedDocumentsAreAttentionOfEachAlone) {
  constexpr int64_t kSeq = 150, kBatch = 2, kHeads = 4, kGroups = 2, kD = 8;
  const std::vector<int64_t> ends = {1, 67, kSeq, 2 * kSeq};
  Ops ops(3);
  const auto q = ops.random<TypeParam>({kSeq, kBatch, kHeads, kD}, 1), dout = ops.random<TypeParam>(q.shape(), 4);
  const auto k = ops.random<TypeParam>({kSeq, kBatch, kGroups, kD}, 2), v = ops.random<TypeParam>(k.shape(), 3);
  for (const int64_t window : {0, 20}) {
    AttentionParams params{.scale = 0.4, .window = window, .document_ends = ends};
    ops.context.flops = 0;
    const auto packed = causal_attention(ops.context, q, k, v, params);
    const auto packed_grads = causal_attention_backward(ops.context, dout, q, k, v, packed.out, packed.lse, params);
    const int64_t packed_flops = std::exchange(ops.context.flops, 0);
    params.document_ends = {};
    int64_t begin = 0;
    for (const int64_t end : ends) {
      const int64_t sample = begin / kSeq, first = begin % kSeq, tokens = end - begin;
      SCOPED_TRACE(core::cat("tokens ", begin, " to ", end, ", window ", window));
      const auto part = [&](const core::TensorView& x) {  // [tokens, 1, heads, d]
        const auto all = values<TypeParam>(x);
        const auto row = static_cast<size_t>(x.dim(2) * x.dim(3));
        std::vector<TypeParam> of_document;
        for (int64_t s = first; s < first + tokens; ++s) {
          const auto at = all.begin() + (s * kBatch + sample) * static_cast<int64_t>(row);
          of_document.insert(of_document.end(), at, at + static_cast<int64_t>(row));
        }
        return ops.tensor(of_document, {tokens, 1, x.dim(2), x.dim(3)});
      };
      const auto alone = causal_attention(ops.context, part(q), part(k), part(v), params);
      const auto grads =
          causal_attention_backward(ops.context, part(dout), part(q), part(k), part(v), alone.out, alone.lse, params);
      EXPECT_TRUE(same_bytes(alone.out, part(packed.out)));
      EXPECT_TRUE(same_bytes(grads.dq, part(packed_grads.dq)));
      EXPECT_TRUE(same_bytes(grads.dk, part(packed_grads.dk)));
      EXPECT_TRUE(same_bytes(grads.dv, part(packed_grads.dv)));
      for (int64_t head = 0; head < kHeads; ++head) {
        for (int64_t s = 0; s < tokens; ++s) {
          ASSERT_EQ(alone.lse.template data<float>()[head * tokens + s],
                    packed.lse.template data<float>()[(sample * kHeads + head) * kSeq + first + s]);
        }
      }
      begin = end;
    }
    EXPECT_EQ(packed_flops, ops.context.flops);
  }
}

TEST(AttentionContract, RefusesDocumentsThatDoNotCoverTheSamples) {
  Ops ops;
  const auto x = ops.random<float>({4, 2, 1, 4}, 1);
  for (const std::vector<int64_t>& ends :
       {std::vector<int64_t>{4}, {4, 9}, {8}, {4, 4, 8}, {3, 2, 4, 8}, {0, 4, 8}, {2, 6, 8}}) {
    EXPECT_THROW(causal_attention(ops.context, x, x, x, {.document_ends = ends}), core::Error) << core::cat(ends);
  }
}

TYPED_TEST(Attention, GroupedQueriesAgreeWithTheDefinition) {
  constexpr int64_t kSeq = 23, kBatch = 2, kHeads = 4, kGroups = 2, kD = 6, kPerGroup = kHeads / kGroups;
  const double scale = 1 / std::sqrt(static_cast<double>(kD));
  Ops ops(2);
  const auto q = ops.random<TypeParam>({kSeq, kBatch, kHeads, kD}, 1, 1.5F);
  const auto k = ops.random<TypeParam>({kSeq, kBatch, kGroups, kD}, 2, 1.5F);
  const auto v = ops.random<TypeParam>({kSeq, kBatch, kGroups, kD}, 3);
  const auto dout = ops.random<TypeParam>({kSeq, kBatch, kHeads, kD}, 4);
  const auto result = causal_attention(ops.context, q, k, v, {scale});
  EXPECT_EQ(result.lse.shape(), (core::Dims{kBatch, kHeads, kSeq}));
  EXPECT_EQ(ops.context.flops, 2 * kSeq * kSeq * kD * kBatch * kHeads);
  const auto gradients = causal_attention_backward(ops.context, dout, q, k, v, result.out, result.lse, {scale});
  EXPECT_EQ(ops.context.flops, 6 * kSeq * kSeq * kD * kBatch * kHeads);
  causal_attention(ops.context, q, k, v, {.scale = scale, .window = 3});  // w (s - w / 2) scores
  EXPECT_EQ(ops.context.flops, (6 * kSeq * kSeq + 2 * 3 * (2 * kSeq - 3)) * kD * kBatch * kHeads);
  // Bounds as in tests/kernels/attention_test.cpp: the rounding of the stored out enters dS.
  const double forward = 200 * kFp32, backward = 400 * kFp32 + 3 * kD * roundoff<TypeParam>() + 1e-7;
  for (int64_t batch = 0; batch < kBatch; ++batch) {
    for (int64_t group = 0; group < kGroups; ++group) {
      const Array keys = head_of(k, batch, group), vals = head_of(v, batch, group);
      Array dk(keys.size()), dv(vals.size());
      for (int64_t head = group * kPerGroup; head < (group + 1) * kPerGroup; ++head) {
        const Array queries = head_of(q, batch, head), g = head_of(dout, batch, head);
        const auto want = reference::attention(queries, keys, vals, kD, {scale});
        expect_head(result.out, batch, head, want.out, forward, roundoff<TypeParam>(), "out");
        for (int64_t s = 0; s < kSeq; ++s) {
          ASSERT_NEAR(result.lse.template data<float>()[(batch * kHeads + head) * kSeq + s],
                      want.lse[static_cast<size_t>(s)], forward);
        }
        const auto loss = [&](const Array& a, const Array& b, const Array& c) {
          return reference::dot(reference::attention(a, b, c, kD, {scale}).out, g);
        };
        expect_head(gradients.dq, batch, head,
                    reference::numeric_gradient([&](const Array& x) { return loss(x, keys, vals); }, queries), backward,
                    roundoff<TypeParam>(), "dq");
        const Array part_k = reference::numeric_gradient([&](const Array& x) { return loss(queries, x, vals); }, keys);
        const Array part_v = reference::numeric_gradient([&](const Array& x) { return loss(queries, keys, x); }, vals);
        for (size_t i = 0; i < dk.size(); ++i) dk[i] += part_k[i], dv[i] += part_v[i];
      }
      expect_head(gradients.dk, batch, group, dk, 6 * backward, roundoff<TypeParam>(), "dk");
      expect_head(gradients.dv, batch, group, dv, 6 * backward, roundoff<TypeParam>(), "dv");
    }
  }
}

// Latent attention's heads: v and out have others than q and k. As the plain kernel computes them, and with packed
// documents as each alone.
TYPED_TEST(Attention, ValuesMayHaveAnotherHeadSize) {
  constexpr int64_t kSeq = 29, kBatch = 2, kHeads = 4, kGroups = 2, kD = 12, kValueD = 7;
  const AttentionParams params{.scale = 0.3};
  Ops ops(2);
  const auto q = ops.random<TypeParam>({kSeq, kBatch, kHeads, kD}, 1, 1.5F);
  const auto k = ops.random<TypeParam>({kSeq, kBatch, kGroups, kD}, 2, 1.5F);
  const auto v = ops.random<TypeParam>({kSeq, kBatch, kGroups, kValueD}, 3);
  const auto dout = ops.random<TypeParam>({kSeq, kBatch, kHeads, kValueD}, 4);
  const auto result = causal_attention(ops.context, q, k, v, params);
  EXPECT_EQ(result.out.shape(), dout.shape());
  const int64_t products = kSeq * kSeq * (kD + kValueD) * kBatch * kHeads;
  EXPECT_EQ(ops.context.flops, products);
  const auto gradients = causal_attention_backward(ops.context, dout, q, k, v, result.out, result.lse, params);
  EXPECT_EQ(ops.context.flops, 3 * products);
  EXPECT_EQ(gradients.dk.shape(), k.shape());
  EXPECT_EQ(gradients.dv.shape(), v.shape());
  const double bound = 400 * kFp32 + 3 * kValueD * roundoff<TypeParam>();
  for (int64_t batch = 0; batch < kBatch; ++batch) {
    for (int64_t group = 0; group < kGroups; ++group) {
      const Array keys = head_of(k, batch, group), vals = head_of(v, batch, group);
      Array dk(keys.size()), dv(vals.size());
      for (int64_t head = 2 * group; head < 2 * group + 2; ++head) {
        const Array queries = head_of(q, batch, head), g = head_of(dout, batch, head);
        expect_head(result.out, batch, head, reference::attention(queries, keys, vals, kD, {params.scale}).out, bound,
                    roundoff<TypeParam>(), "out");
        const auto want = reference::attention_backward(g, queries, keys, vals, kD, {params.scale});
        expect_head(gradients.dq, batch, head, want.dq, bound, roundoff<TypeParam>(), "dq");
        for (size_t i = 0; i < dk.size(); ++i) dk[i] += want.dk[i];
        for (size_t i = 0; i < dv.size(); ++i) dv[i] += want.dv[i];
      }
      expect_head(gradients.dk, batch, group, dk, 6 * bound, roundoff<TypeParam>(), "dk");
      expect_head(gradients.dv, batch, group, dv, 6 * bound, roundoff<TypeParam>(), "dv");
    }
  }
}

TYPED_TEST(Attention, BitsDoNotDependOnThreadsAndMemoryIsLinear) {
  std::vector<Array> results;
  for (const int threads : {1, 2, 3}) {
    Ops ops(threads);
    const auto q = ops.random<TypeParam>({300, 1, 6, 16}, 1), k = ops.random<TypeParam>({300, 1, 3, 16}, 2);
    const auto out = causal_attention(ops.context, q, k, k, {0.25});
    const auto gradients = causal_attention_backward(ops.context, q, q, k, k, out.out, out.lse, {0.25});
    Array all = array(out.out);
    for (const Array& part : {array(gradients.dq), array(gradients.dk)})
      all.insert(all.end(), part.begin(), part.end());
    results.push_back(all);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);

  Ops ops;
  const auto q = ops.random<TypeParam>({4096, 1, 1, 8}, 1);
  const int64_t before = ops.arena.total_peak_bytes();
  causal_attention(ops.context, q, q, q, {0.3});
  EXPECT_LT(ops.arena.total_peak_bytes() - before, 4096 * 4096 * 4 / 16) << "a seq x seq buffer";
}

// The mask of a head of a sample is the same wherever it is computed: on the rank that holds heads 2 and 3, or at
// another position of the batch.
TEST(AttentionDropout, MasksFollowTheHeadAndTheSample) {
  constexpr int64_t kSeq = 9, kHeads = 4, kD = 4;
  Ops ops(2);
  const std::vector<int64_t> samples = {41, 7};
  const auto all = ops.random<float>({kSeq, 2, kHeads, kD}, 1);
  AttentionParams params{.scale = 0.5, .dropout = {0.4F, 99}, .samples = samples};
  const Array whole = array(causal_attention(ops.context, all, all, all, params).out);
  core::Tensor part(ops.arena, core::DType::kFp32, {kSeq, 1, 2, kD}, core::MemoryTag::kTmp);
  const auto at = [&](int64_t s, int64_t batch, int64_t head, int64_t e) {
    return static_cast<size_t>(((s * 2 + batch) * kHeads + head) * kD + e);
  };
  for (int64_t s = 0; s < kSeq; ++s) {
    for (int64_t i = 0; i < 2 * kD; ++i) part.data<float>()[s * 2 * kD + i] = all.data<float>()[at(s, 1, 2, i)];
  }
  const std::vector<int64_t> second = {7};
  params.first_head = 2;
  params.samples = second;
  const Array of_rank = array(causal_attention(ops.context, part, part, part, params).out);
  for (int64_t s = 0; s < kSeq; ++s) {
    for (int64_t i = 0; i < 2 * kD; ++i) {
      ASSERT_EQ(of_rank[static_cast<size_t>(s * 2 * kD + i)], whole[at(s, 1, 2, i)]) << s << " " << i;
    }
  }
  params.dropout.key = 100;
  EXPECT_NE(array(causal_attention(ops.context, part, part, part, params).out), of_rank);
}

TEST(AttentionContract, AcceptsEmptyAndRefusesWrongShapes) {
  Ops ops;
  const auto none = ops.random<float>({0, 1, 2, 4}, 1);
  EXPECT_EQ(causal_attention(ops.context, none, none, none, {1}).out.size(), 0);
  const auto q = ops.random<float>({3, 1, 3, 4}, 1), k = ops.random<float>({3, 1, 2, 4}, 1);
  EXPECT_THROW(causal_attention(ops.context, q, k, k, {1}), core::Error);
  EXPECT_THROW(split_qkv(ops.context, ops.random<float>({3, 1, 13}, 1), 1, 1, 4), core::Error);
}

}  // namespace
}  // namespace ms::ops
