// Compositions of simple operators against the fused operators, which are checked against their definitions themselves.
#include "train/ops/unfused.h"

#include "core/error.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/activation.h"

namespace ms::ops {
namespace {

using core::Dims;

template <class T>
class Unfused : public ::testing::Test {
 protected:
  // Two roundings to T's precision, and fp32 sums in another order.
  static constexpr double kRelative = sizeof(T) == 4 ? 1e-5 : 0x1p-6;
  static constexpr double kAbsolute = sizeof(T) == 4 ? 1e-5 : 0x1p-6;
  static void expect_same(const core::TensorView& seen, const core::TensorView& fused, const char* what) {
    ASSERT_EQ(seen.shape(), fused.shape()) << what;
    ASSERT_EQ(seen.dtype(), fused.dtype()) << what;
    expect_near(seen, array(fused), kAbsolute, kRelative, what);
  }
};
TYPED_TEST_SUITE(Unfused, StorageTypes);

TYPED_TEST(Unfused, RmsNormAgreesWithTheFusedOne) {
  for (const int threads : {1, 3}) {
    for (const double offset : {0.0, 1.0}) {
      Ops ops(threads);
      const Dims shape = {150, 3, 40};
      const auto x = ops.random<TypeParam>(shape, 1, 2), gamma = ops.random<TypeParam>({40}, 2);
      const auto dy = ops.random<TypeParam>(shape, 3), residual = ops.random<TypeParam>(shape, 4);
      const NormParams params{1e-5, offset};
      core::Tensor rstd, fused_rstd;
      const auto y = unfused::rms_norm(ops.context, x, gamma, params, &rstd);
      this->expect_same(y, rms_norm(ops.context, x, gamma, params, &fused_rstd), "y");
      expect_near(rstd, array(fused_rstd), 0, 1e-6, "rstd");
      const core::TensorView beside = residual;
      for (const core::TensorView* added : {static_cast<const core::TensorView*>(nullptr), &beside}) {
        const auto dgamma = ops.zeros({40}), fused_dgamma = ops.zeros({40});
        const auto dx = unfused::rms_norm_backward(ops.context, dy, x, gamma, params, rstd, dgamma, added);
        this->expect_same(dx, rms_norm_backward(ops.context, dy, x, gamma, params, fused_rstd, fused_dgamma, added),
                          "dx");
        expect_near(dgamma, array(fused_dgamma), 1e-4, 1e-5, "dgamma");
      }
    }
  }
}

TYPED_TEST(Unfused, SwigluAgreesWithTheFusedOne) {
  Ops ops(2);
  const auto x = ops.random<TypeParam>({7, 2, 66}, 1, 4), dy = ops.random<TypeParam>({7, 2, 33}, 2);
  this->expect_same(unfused::swiglu(ops.context, x), gated_activation(ops.context, Activation::kSilu, x), "y");
  const auto copy = [&] { return ops.tensor(values<TypeParam>(x), x.shape()); };
  this->expect_same(unfused::swiglu_backward(ops.context, dy, copy()),
                    gated_activation_backward(ops.context, Activation::kSilu, dy, copy()), "dx");
}

TYPED_TEST(Unfused, RopeAgreesWithTheFusedOne) {
  Ops ops(2);
  std::vector<int32_t> positions;  // [9, 2]
  for (int32_t token = 0; token < 18; ++token) positions.push_back(token * 7 % 20);
  for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbours}) {
    for (const int64_t dim : {8, 12}) {  // of heads of 12
      const RopeTable table(ops.arena, 20, rope_inverse_frequencies(dim, 100), pairs, 1.25);
      for (const bool inverse : {false, true}) {
        const auto x = ops.random<TypeParam>({9, 2, 3, 12}, 1), same = ops.random<TypeParam>({9, 2, 3, 12}, 1);
        const auto rotated = unfused::rope(ops.context, x, table, {}, inverse);
        EXPECT_TRUE(same_bytes(x, same)) << "it is only read";
        rope_inplace(ops.context, same, table, 0, inverse);
        this->expect_same(rotated, same, "rotated");
        const auto moved = ops.random<TypeParam>({9, 2, 3, 12}, 1);
        const auto elsewhere = unfused::rope(ops.context, x, table, positions, inverse);
        rope_inplace(ops.context, moved, table, positions, inverse);
        this->expect_same(elsewhere, moved, "rotated to positions");
      }
      const auto x = ops.random<TypeParam>({21, 2, 3, 12}, 1);
      EXPECT_THROW(unfused::rope(ops.context, x, table, {}, false), core::Error);
    }
  }
}

TYPED_TEST(Unfused, AttentionAgreesWithTheFusedOne) {
  constexpr int64_t kSeq = 37, kBatch = 2, kHeads = 4, kGroups = 2, kD = 16;
  const std::vector<int64_t> samples = {3, 8}, documents = {9, 10, kSeq, kSeq + 21, 2 * kSeq};
  // The last span sees no key.
  const std::vector<kernels::QuerySpan> spans = {{0, 9, 0, 1}, {9, 20, 9, 3}, {29, 7, 29, 5}, {36, 1, 36, 5}};
  const std::vector<kernels::KeyRun> seen = {{0, 13, 0}, {0, 4, 0}, {20, 17, 20}, {3, 1, 3}, {30, 7, 30}};
  const auto lists = [&](bool is_causal) { return kernels::VisibleRuns{spans.data(), seen.data(), 4, is_causal}; };
  struct Mask {
    std::vector<int64_t> ends = {};
    int64_t prefix = 0;
    kernels::VisibleRuns runs = {};
  };
  for (const auto& [ends, prefix, runs] :
       {Mask{}, Mask{documents}, Mask{{}, 19}, Mask{{}, 0, lists(true)}, Mask{{}, 0, lists(false)}}) {
    for (const int64_t window : {0, 5}) {
      if ((prefix > 0 || runs.any()) && window > 0) continue;  // exclude each other
      for (const double softcap : {0.0, 2.0}) {
        for (const float probability : {0.0F, 0.3F}) {
          SCOPED_TRACE(core::cat("window ", window, ", prefix ", prefix, ", softcap ", softcap, ", dropout ",
                                 probability, ", documents ", ends.size(),
                                 runs.any() ? runs.is_causal ? ", causal lists" : ", lists" : ""));
          const int threads = softcap > 0 ? 3 : 1;
          Ops ops(threads);
          const auto q = ops.random<TypeParam>({kSeq, kBatch, kHeads, kD}, 1);
          const auto k = ops.random<TypeParam>({kSeq, kBatch, kGroups, kD}, 2);
          const auto v = ops.random<TypeParam>({kSeq, kBatch, kGroups, kD}, 3);
          const auto dout = ops.random<TypeParam>({kSeq, kBatch, kHeads, kD}, 4);
          AttentionParams params;
          params.scale = 0.4, params.softcap = softcap, params.window = window;
          params.prefix = prefix, params.runs = runs;
          params.dropout = {probability, 77};
          params.first_head = 2, params.samples = samples, params.document_ends = ends;
          const auto plain = unfused::causal_attention(ops.context, q, k, v, params);
          const auto fused = causal_attention(ops.context, q, k, v, params);
          this->expect_same(plain.out, fused.out, "out");
          const auto plain_lse = array(plain.lse), fused_lse = array(fused.lse);
          for (size_t i = 0; i < plain_lse.size(); ++i) {
            if (plain_lse[i] == fused_lse[i]) continue;  // both -inf, where there are no keys
            ASSERT_NEAR(plain_lse[i], fused_lse[i], 1e-5 + 1e-5 * std::abs(fused_lse[i])) << "lse at " << i;
          }
          const int64_t before = ops.context.flops;
          const auto grads =
              unfused::causal_attention_backward(ops.context, dout, q, k, v, fused.out, fused.lse, params);
          const int64_t plain_flops = ops.context.flops - before;
          const auto want = causal_attention_backward(ops.context, dout, q, k, v, fused.out, fused.lse, params);
          EXPECT_EQ(plain_flops, ops.context.flops - before - plain_flops) << "what the model needs";
          this->expect_same(grads.dq, want.dq, "dq");
          this->expect_same(grads.dk, want.dk, "dk");
          this->expect_same(grads.dv, want.dv, "dv");
        }
      }
    }
  }
}

}  // namespace
}  // namespace ms::ops
