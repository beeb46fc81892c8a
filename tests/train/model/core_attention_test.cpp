#include "train/model/core_attention.h"

#include <gtest/gtest.h>

#include "tests/train/model/gradient_check.h"
#include "train/ops/elementwise.h"
#include "train/ops/fusion_attention.h"
#include "train/ops/ring_attention.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 12, kBatch = 2;

const std::vector<ModuleCase> kCases = {
    {"causal", [](TrainerConfig&) {}},
    {"causal with plain operators", [](TrainerConfig& config) { config.training.optimization_level = 0; }},
    {"scale, softcap and window",
     [](TrainerConfig& config) {
       config.model.query_pre_attn_scalar = 5;
       config.model.attn_logit_softcapping = 2;
       config.model.sliding_window = 5;
     }},
    {"sinks, with a window",
     [](TrainerConfig& config) {
       config.model.softmax_type = "learnable";
       config.model.sliding_window = 5;
     }},
    {"sinks of 0 with plain operators",
     [](TrainerConfig& config) {
       config.model.softmax_type = "off-by-one";
       config.training.optimization_level = 0;
     }},
    {"ALiBi, with a window",
     [](TrainerConfig& config) {
       config.model.position_embedding_type = "alibi";
       config.model.sliding_window = 5;
     }},
    {"ALiBi with plain operators",
     [](TrainerConfig& config) {
       config.model.position_embedding_type = "alibi";
       config.training.optimization_level = 0;
     }},
    {"prefix with dropout",
     [](TrainerConfig& config) {
       config.training.sparse_mode = 5;
       config.training.prefix_length = 7;
       config.model.attention_dropout = 0.3;
     }},
    {"prefix with plain operators",
     [](TrainerConfig& config) {
       config.training.sparse_mode = 6;
       config.training.prefix_length = 7;
       config.training.optimization_level = 0;
     }},
    {"packed documents with dropout",
     [](TrainerConfig& config) {
       config.training.reset_attention_mask = true;
       config.model.attention_dropout = 0.3;
     }},
};

struct Sizes {
  explicit Sizes(const Rank& rank)
      : heads(rank.config.model.num_attention_heads / rank.state->tp_size()),
        groups(rank.config.model.query_groups() / rank.state->tp_size()),
        head_dim(rank.config.model.kv_channels) {}
  int64_t heads, groups, head_dim;
  core::Dims packed() const { return {kSeq, kBatch, (heads + 2 * groups) * head_dim}; }
};

TEST(CoreAttention, GradientsAreThoseOfItsForward) {
  for_each_case(kCases, [](Rank& rank) {
    const Sizes sizes(rank);
    const std::vector<int64_t> samples = {3, 4}, ends = {5, kSeq, kSeq + 7, 2 * kSeq};
    SequenceContext sequence{.samples = samples};
    if (rank.config.training.reset_attention_mask) sequence.document_ends = ends;
    const auto attention = make_core_attention(*rank.state, *rank.parameters, /*layer=*/0);
    CoreAttentionActivations saved;
    GradientCheck check(
        rank,
        {.forward =
             [&](const core::TensorView& x) {
               attention->forward(ops::split_qkv(rank.ops, x, sizes.heads, sizes.groups, sizes.head_dim), saved,
                                  sequence);
               return ops::cast(rank.ops, saved.out, saved.out.dtype());
             },
         .backward =
             [&](core::Tensor dy) {
               const ops::QkvGradients gradients = attention->backward(std::move(dy), saved, sequence);
               EXPECT_FALSE(saved.q.defined() || saved.k.defined() || saved.v.defined() || saved.out.defined() ||
                            saved.lse.defined());
               return ops::merge_qkv(rank.ops, gradients.dq, gradients.dk, gradients.dv);
             }},
        // The check adds up a split parameter's part of the loss over the ranks, but not a split result's.
        rank.state->tp_size() == 1 ? "decoder.layers.0.self_attention.core_attention" : "none");
    check.run(sizes.packed());
  });
}

TEST(CoreAttention, DropsNothingOutsideTraining) {
  for_each_case({kCases.back()}, [](Rank& rank) {
    const Sizes sizes(rank);
    const std::vector<int64_t> samples = {3, 4}, others = {5, 6};
    const auto attention = make_core_attention(*rank.state, *rank.parameters, /*layer=*/0);
    core::Tensor x(rank.arena, core::DType::kFp32, sizes.packed(), core::MemoryTag::kTmp);
    const auto values = test::RandomValues(1).make<float>(x.size());
    std::copy(values.begin(), values.end(), x.data<float>());
    const auto result = [&](std::span<const int64_t> of) {
      CoreAttentionActivations saved;
      attention->forward(ops::split_qkv(rank.ops, x, sizes.heads, sizes.groups, sizes.head_dim), saved,
                         {.samples = of});
      const auto elements = saved.out.elements<float>();
      return std::vector<float>(elements.begin(), elements.end());
    };
    EXPECT_EQ(result({}), result({}));
    EXPECT_NE(result(samples), result({}));
    EXPECT_NE(result(samples), result(others));
  });
}

// The keys of the first half in a step of a ring, the rest here: with its statistics the partial result becomes the
// whole one.
TEST(CoreAttention, StatisticsAreThoseOfTheRingUpdate) {
  for_each_case({kCases[0], kCases[1]}, [](Rank& rank) {
    const Sizes sizes(rank);
    const auto attention = make_core_attention(*rank.state, *rank.parameters, /*layer=*/0);
    core::Tensor x(rank.arena, core::DType::kFp32, sizes.packed(), core::MemoryTag::kTmp);
    const auto values = test::RandomValues(2).make<float>(x.size());
    std::copy(values.begin(), values.end(), x.data<float>());
    const auto split = [&](int64_t begin, int64_t end) {
      return ops::split_qkv(rank.ops, x.view().rows(begin, end), sizes.heads, sizes.groups, sizes.head_dim);
    };
    constexpr int64_t kHalf = kSeq / 2;
    CoreAttentionActivations whole, own;
    attention->forward(split(0, kSeq), whole, {});
    attention->forward(split(kHalf, kSeq), own, {});

    const auto flat = [](const core::TensorView& t) { return t.reshaped({t.dim(0), t.dim(1), t.dim(2) * t.dim(3)}); };
    const ops::QkvTensors first = split(0, kHalf);
    const ops::FusionAttentionResult arrived =
        ops::fusion_attention(rank.ops, flat(own.q), flat(first.k), flat(first.v),
                              {.head_num = sizes.heads,
                               .layout = ops::AttentionLayout::kSbh,
                               .scale = 1 / std::sqrt(static_cast<double>(sizes.head_dim))});
    core::Tensor ones(rank.arena, core::DType::kFp32, own.lse.shape(), core::MemoryTag::kTmp);
    std::ranges::fill(ones.elements<float>(), 1.0F);
    const ops::FusionAttentionResult both = ops::ring_attention_update(
        rank.ops, {flat(own.out), own.lse, ones}, {arrived.out, arrived.softmax_max, arrived.softmax_sum});

    const auto expected = whole.out.view().rows(kHalf, kSeq).elements<float>();
    const auto seen = both.out.elements<float>();
    ASSERT_EQ(seen.size(), expected.size());
    for (size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], expected[i], 1e-5) << i;
    for (int64_t row = 0; row < kBatch * sizes.heads; ++row) {
      for (int64_t s = 0; s < kHalf; ++s) {
        const auto at = static_cast<size_t>(row * kHalf + s);
        const float lse = both.softmax_max.elements<float>()[at] + std::log(both.softmax_sum.elements<float>()[at]);
        EXPECT_NEAR(lse, whole.lse.elements<float>()[static_cast<size_t>(row * kSeq + kHalf + s)], 1e-5);
      }
    }
  });
}

}  // namespace
}  // namespace ms::train
