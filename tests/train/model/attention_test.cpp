#include "train/model/attention.h"

#include <gtest/gtest.h>

#include "core/layout/slot_policy.h"
#include "tests/train/model/gradient_check.h"
#include "train/model/rotary_embedding.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 12, kBatch = 2;

void make_latent(TrainerConfig& config) {
  config.model.multi_latent_attention = config.model.qk_layernorm = true;
  config.model.q_lora_rank = 10;
  config.model.kv_lora_rank = 6;
  config.model.qk_head_dim = 5;
  config.model.qk_pos_emb_head_dim = 4;
  config.model.v_head_dim = 7;
}

const std::vector<ModuleCase> kCases = {
    {"Llama", [](TrainerConfig&) {}},
    {"biases and norms of heads",
     [](TrainerConfig& config) {
       config.model.add_bias_linear = config.model.add_qkv_bias = true;
       config.model.qk_layernorm = true;
     }},
    {"LayerNorm without rotary embedding",
     [](TrainerConfig& config) {
       config.model.normalization = "LayerNorm";
       config.model.position_embedding_type = "none";
     }},
    {"Gemma 2",
     [](TrainerConfig& config) {
       config.model.post_norm = true;
       config.model.query_pre_attn_scalar = 5;
       config.model.attn_logit_softcapping = 2;
       config.model.sliding_window = 5;
     }},
    {"plain operators", [](TrainerConfig& config) { config.training.optimization_level = 0; }},
    {"one query group, which ranks share, with biases and norms of heads",
     [](TrainerConfig& config) {
       config.model.num_query_groups = 1;
       config.model.add_bias_linear = config.model.add_qkv_bias = true;
       config.model.qk_layernorm = true;
     }},
    {"an output gate", [](TrainerConfig& config) { config.model.attention_output_gate = true; }},
    {"an output gate with one query group, which ranks share, biases, norms of heads and a norm after it",
     [](TrainerConfig& config) {
       config.model.attention_output_gate = true;
       config.model.num_query_groups = 1;
       config.model.add_bias_linear = config.model.add_qkv_bias = true;
       config.model.qk_layernorm = config.model.post_norm = true;
     }},
    {"packed documents",
     [](TrainerConfig& config) {
       config.training.reset_attention_mask = true;
       config.model.attention_dropout = 0.3;
     }},
    {"packed documents with plain operators",
     [](TrainerConfig& config) {
       config.training.reset_attention_mask = true;
       config.training.optimization_level = 0;
     }},
    {"dropped norms", [](TrainerConfig& config) { config.training.recompute_norm = true; }},
    {"dropout", [](TrainerConfig& config) { config.model.attention_dropout = 0.3; }},
    {"Gemma 2's with dropout and plain operators",
     [](TrainerConfig& config) {
       config.model.attn_logit_softcapping = 2;
       config.model.sliding_window = 5;
       config.model.attention_dropout = 0.3;
       config.training.optimization_level = 0;
     }},
    {"latent", make_latent},
    {"latent without a vector of queries, recomputed, with dropped norms",
     [](TrainerConfig& config) {
       make_latent(config);
       config.model.q_lora_rank = 0;
       config.training.recompute_mla_up_proj = config.training.recompute_norm = true;
     }},
    {"latent without norms and rotary embedding",
     [](TrainerConfig& config) {
       make_latent(config);
       config.model.qk_layernorm = false;
       config.model.position_embedding_type = "none";
     }},
    {"latent, recomputed, with LayerNorm, a norm after it and YaRN",
     [](TrainerConfig& config) {
       make_latent(config);
       config.model.normalization = "LayerNorm";
       config.model.post_norm = true;
       config.model.rope_scaling_type = "yarn";
       config.model.rope_scaling_factor = 4;
       config.model.rope_scaling_mscale = 0.7;
       config.model.rope_scaling_mscale_all_dim = 1.2;
       config.training.recompute_mla_up_proj = true;
     }},
    {"latent, recomputed, of packed documents with plain operators",
     [](TrainerConfig& config) {
       make_latent(config);
       config.model.q_lora_rank = 0;
       config.model.attention_dropout = 0.3;
       config.training.reset_attention_mask = true;
       config.training.optimization_level = 0;
       config.training.recompute_mla_up_proj = true;
     }},
};

// deferred: the weights' gradients are computed after the backward.
void check_gradients(bool deferred) {
  for_each_case(kCases, [&](Rank& rank) {
    const auto rope = make_rope_table(rank.arena, rank.config.model, {{0, kSeq}}, kSeq);
    const std::vector<int64_t> samples = {3, 4}, ends = {5, kSeq, kSeq + 7, 2 * kSeq};
    std::vector<int32_t> positions;
    for (int32_t s = 0; s < kSeq; ++s) positions.insert(positions.end(), {s < 5 ? s : s - 5, s < 7 ? s : s - 7});
    SequenceContext sequence{.samples = samples};
    if (rank.config.training.reset_attention_mask) sequence.document_ends = ends, sequence.rotary_positions = positions;
    const auto attention = make_attention(*rank.state, *rank.parameters, rope ? &*rope : nullptr, /*layer=*/0);
    const layout::LayerSlots slots = layout::layer_slots(rank.config.recompute_plan(), {}, 0);
    AttentionActivations saved;
    core::Tensor input;
    GradientCheck check(rank,
                        {.forward =
                             [&](const core::TensorView& x) {
                               saved = {};
                               input = ops::cast(rank.ops, x, x.dtype());
                               return attention->forward(x, saved, slots, &x, sequence);
                             },
                         .backward =
                             [&](core::Tensor dy) {
                               WeightGradients weights;
                               if (deferred) weights.defer();
                               core::Tensor dx = attention->backward(dy, input, saved, dy, sequence, weights);
                               dy.reset();
                               weights.run();
                               return dx;
                             }},
                        "decoder.layers.0.self_attention.");
    check.run(hidden_shape(rank, kSeq, kBatch));
  });
}

TEST(Attention, GradientsAreThoseOfItsForward) { check_gradients(false); }
TEST(Attention, DeferredGradientsOfWeightsAreThoseOfItsForward) { check_gradients(true); }

}  // namespace
}  // namespace ms::train
