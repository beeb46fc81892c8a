// Whole runs with layers of multi-token prediction: layouts against one rank, plans, memory, resuming. The numbers of
// one rank are torch's in torch_golden_test.cpp (deepseek_v3_mtp_adamw).
#include "train/model/multi_token_prediction.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "tests/support/planned_run.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::Outcome;
using test::TinyLayout;

const test::PlanMode kModels[] = {{"two layers", [](train::TrainerConfig&) {}},
                                  {"tied",
                                   [](train::TrainerConfig& config) {
                                     config.model.mtp_num_layers = 1;
                                     config.model.untie_embeddings_and_output_weights = false;
                                     config.model.normalization = "LayerNorm";
                                     config.training.calculate_per_token_loss = true;
                                   }},
                                  {"latent with experts", [](train::TrainerConfig& config) {
                                     test::use_latent_attention(config);
                                     config.model.mtp_num_layers = 1;
                                     config.model.num_experts = 6;
                                     config.model.moe_router_topk = 2;
                                     config.model.moe_ffn_hidden_size = 12;
                                     config.model.moe_shared_expert_intermediate_size = 20;
                                     config.model.moe_router_score_function = "sigmoid";
                                     config.model.moe_router_enable_expert_bias = true;
                                     config.training.moe_router_bias_update_rate = 0.01;
                                     config.training.first_k_dense_replace = 1;
                                     config.training.moe_aux_loss_coeff = {0.01};
                                   }}};

train::TrainerConfig config_of(const test::TemporaryFolder& folder, const test::PlanMode& model,
                               const TinyLayout& layout = {}) {
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.mtp_num_layers = 2;
  config.model.init_method_std = 0.1;  // scores that rounding does not reorder
  config.training.mtp_loss_scaling_factor = 0.3;
  config.training.global_batch_size = 8;
  config.training.train_iters = 30;
  model.set(config);
  return config;
}

Outcome run(train::TrainerConfig config, const test::TemporaryFolder& folder, const TinyLayout& layout,
            const std::string& name) {
  return test::outcome_of(std::move(config), layout.ranks(), folder / name);
}

// tolerance: 0: every bit.
void expect_agree(const Outcome& seen, const Outcome& want, double tolerance) {
  ASSERT_EQ(seen.summary.steps.size(), want.summary.steps.size());
  for (size_t i = 0; i < want.summary.steps.size(); ++i) {
    const auto &a = seen.summary.steps[i], &b = want.summary.steps[i];
    EXPECT_NEAR(a.loss, b.loss, tolerance * b.loss) << "step " << i + 1;
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 100 * tolerance * b.grad_norm) << "step " << i + 1;
    ASSERT_EQ(a.mtp_losses.size(), b.mtp_losses.size());
    for (size_t k = 0; k < a.mtp_losses.size(); ++k)
      EXPECT_NEAR(a.mtp_losses[k], b.mtp_losses[k], tolerance * b.mtp_losses[k]) << "step " << i + 1 << ", " << k;
  }
  EXPECT_LE(test::largest_distance(seen.weights, want.weights), 10 * tolerance);
}

class MtpModels : public testing::TestWithParam<size_t> {
 protected:
  const test::PlanMode& model() const { return kModels[GetParam()]; }
};

TEST_P(MtpModels, EveryLayoutAgreesWithOneRank) {
  const test::TemporaryFolder folder;
  const Outcome one = run(config_of(folder, model()), folder, {}, "one");
  for (size_t k = 0; k < one.summary.steps.front().mtp_losses.size(); ++k)
    EXPECT_LT(one.summary.steps.back().mtp_losses[k], 0.9 * one.summary.steps.front().mtp_losses[k]);
  const bool has_experts = one.weights.contains("mtp.layers.0.transformer_layer.mlp.router.weight");
  const TinyLayout layouts[] = {{1, 2, 1},
                                {1, 4, 1},
                                {1, 2, 1, 0, false, 2},
                                {1, 2, 1, 0, false, 1, "zb-v"},
                                {1, 2, 1, 0, false, 1, "zb-h1"},
                                {2, 1, 1},
                                {2, 1, 1, 0, true},
                                {1, 1, 2, 1},
                                {1, 2, 2, 2},
                                {1, 1, 2, 3},
                                {2, 2, 2, 1, true, 2},
                                {1, 1, 1, 0, false, 1, "", "", 2, "a2a"},
                                {1, 2, 1, 1, false, 1, "", "", 4, "p2p"},
                                {2, 1, 2, 0, true, 1, "", "", 2, "all_gather"},
                                {1, 2, 1, 0, false, 1, "", "", 2, "p2p,a2a"}};
  for (const TinyLayout& layout : layouts) {
    if (has_experts && !layout.schedule.empty()) continue;  // refused
    SCOPED_TRACE(layout.name());
    train::TrainerConfig config = config_of(folder, model(), layout);
    if (has_experts) config.parallel.expert_model_parallel_size = layout.cp > 1 ? 2 : layout.dp;
    if (has_experts && layout.zero > 1) config.parallel.expert_model_parallel_size = 1;
    if (has_experts && layout.tp > 1) config.parallel.expert_tensor_parallel_size = layout.sp ? 1 : 2;
    if (has_experts && layout.tp > 1 && !layout.sp) continue;  // refused
    expect_agree(run(config, folder, layout, layout.name()), one, layout.tp * layout.dp * layout.cp == 1 ? 0 : 1e-5);
  }
}

TEST_P(MtpModels, WhatMemoryItTakesChangesNoResult) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = config_of(folder, model());
  config.training.train_iters = 4;
  config.training.global_batch_size = 2;
  const Outcome plain = run(config, folder, {}, "plain");
  const auto peak = [](const Outcome& outcome) {
    return outcome.summary.steps.back().peak_bytes[static_cast<size_t>(core::MemoryTag::kAct)];
  };
  train::TrainerConfig whole = config, outputs = config, brief = config, chunks = config;
  whole.training.recompute_granularity = "full";
  whole.training.recompute_method = "uniform";
  whole.training.recompute_num_layers = 2;
  outputs.training.recompute_norm = outputs.training.recompute_activation_function = true;
  brief.training.mtp_mem_efficient_logits = true;
  chunks.training.loss_chunk_size = 5;
  for (const auto& [name, changed, tolerance] :
       {std::tuple{"whole", whole, 0.0}, {"outputs", outputs, 0.0}, {"brief", brief, 1e-5}, {"chunks", chunks, 1e-5}}) {
    SCOPED_TRACE(name);
    const Outcome again = run(changed, folder, {}, name);
    expect_agree(again, plain, tolerance);
    EXPECT_LT(peak(again), peak(plain));
  }
}

TEST_P(MtpModels, TenAndTenStepsEqualTwentyBitForBit) {
  const test::TemporaryFolder folder;
  const TinyLayout layout{1, 2, 1};
  train::TrainerConfig config = config_of(folder, model(), layout);
  config.training.global_batch_size = 4;
  config.training.train_iters = 20;
  const Outcome whole = run(config, folder, layout, "whole");
  config.training.train_iters = 10;
  run(config, folder, layout, "parts");
  config.training.train_iters = 20;
  config.checkpoint.load = folder / "parts";
  const Outcome second = run(config, folder, layout, "parts");
  ASSERT_EQ(second.summary.steps.size(), 10U);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(second.summary.steps[i].loss, whole.summary.steps[10 + i].loss) << i;
  EXPECT_EQ(test::largest_distance(second.weights, whole.weights), 0);
}

INSTANTIATE_TEST_SUITE_P(Each, MtpModels, testing::Range<size_t>(0, std::size(kModels)), [](const auto& test) {
  std::string name = kModels[test.param].name;
  std::ranges::replace(name, ' ', '_');
  return name;
});

TEST(MtpPlan, EqualsTheRun) {
  const TinyLayout layouts[] = {{},
                                {2, 1, 1},
                                {2, 1, 2, 1, true},
                                {2, 2, 1, 0, true, 2},
                                {1, 2, 2, 2},
                                {2, 2, 2, 3, true},
                                {2, 2, 1, 0, true, 1, "zb-v"},
                                {1, 2, 1, 0, false, 1, "dualpipev"},
                                {2, 1, 1, 0, true, 1, "", "tp"},
                                {2, 1, 1, 0, true, 1, "", "coc2"},
                                {1, 1, 1, 1, false, 1, "", "", 2, "a2a"},
                                {1, 2, 1, 0, false, 1, "", "", 2, "p2p"},
                                {2, 1, 1, 0, true, 1, "", "", 2, "all_gather"}};
  const test::PlanMode changes[] = {
      {"plain", [](train::TrainerConfig&) {}},
      {"one layer, tied",
       [](train::TrainerConfig& config) {
         config.model.mtp_num_layers = 1;
         config.model.untie_embeddings_and_output_weights = false;
       }},
      {"recomputed whole", test::kPlanModes[test::kPlanUniform].set},
      {"some layers recomputed", test::kPlanModes[test::kPlanBlock].set},
      {"brief logits",
       [](train::TrainerConfig& config) {
         config.training.mtp_mem_efficient_logits = !config.parallel.use_megatron_fsdp;  // exclude each other
       }},
      {"loss in chunks",
       [](train::TrainerConfig& config) {
         if (!config.parallel.use_megatron_fsdp) config.training.loss_chunk_size = 5;  // exclude each other
       }},
      {"bf16", [](train::TrainerConfig& config) { config.training.bf16 = true; }},
      {"frozen parts",
       [](train::TrainerConfig& config) { config.optimizer.freeze_parameters = "eh_proj|mtp.*fc1|word_emb"; }},
      {"latent attention", test::use_latent_attention},
  };
  test::expect_plans_equal_runs(
      layouts, changes, test::PlanTable::kDiagonals,
      [](train::TrainerConfig& config) {
        config.model.num_layers = 8;
        config.model.mtp_num_layers = 2;
      },
      /*exact=*/true);
}

TEST(MtpPlan, EqualsTheRunWithExperts) {
  for (const TinyLayout& layout :
       {TinyLayout{}, TinyLayout{1, 2, 2, 1}, TinyLayout{2, 1, 2, 1, true},
        TinyLayout{1, 1, 1, 1, false, 1, "", "", 2, "a2a"}, TinyLayout{2, 1, 1, 0, true, 1, "", "", 2, "p2p"}}) {
    SCOPED_TRACE(layout.name());
    const test::TemporaryFolder folder;
    train::TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.model.mtp_num_layers = 2;
    config.model.num_experts = 8;
    config.model.moe_ffn_hidden_size = 24;
    config.model.moe_shared_expert_intermediate_size = 40;
    config.training.fix_router = true;
    config.parallel.expert_model_parallel_size = layout.dp * layout.cp;
    config.parallel.expert_tensor_parallel_size = 1;
    config.training.moe_aux_loss_coeff = {0.01};
    test::expect_plan_equals_run(config, layout.ranks());
  }
}

TEST(Mtp, RollsTokensLabelsAndMaskUpWithinEachSample) {
  train::Microbatch microbatch;
  microbatch.seq = 3, microbatch.batch = 2;
  microbatch.tokens = {10, 20, 11, 21, 12, 22};
  microbatch.labels = {11, 21, 12, 22, 13, 23};
  microbatch.loss_mask = {1, 1, 1, 0, 1, 1};
  train::Microbatch rolled;
  train::roll(microbatch, rolled);
  EXPECT_EQ(rolled.tokens, (std::vector<int32_t>{11, 21, 12, 22, 0, 0}));
  EXPECT_EQ(rolled.labels, (std::vector<int32_t>{12, 22, 13, 23, 0, 0}));
  EXPECT_EQ(rolled.loss_mask, (std::vector<float>{1, 0, 1, 1, 0, 0}));
  train::roll(train::Microbatch(rolled), rolled);
  EXPECT_EQ(rolled.labels, (std::vector<int32_t>{13, 23, 0, 0, 0, 0}));
}

// The gradient of the sum is that of the parts: with a factor of 0 the model trains as without these layers.
TEST(Mtp, AFactorOfZeroLeavesTheModelAsItIs) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = config_of(folder, kModels[0]);
  config.training.train_iters = 5;
  config.training.mtp_loss_scaling_factor = 0;
  const Outcome with = run(config, folder, {}, "with");
  config.model.mtp_num_layers = 0;
  const Outcome without = run(config, folder, {}, "without");
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(with.summary.steps[i].loss, without.summary.steps[i].loss) << i;
}

TEST(Mtp, RefusesWhatItCannotDoByName) {
  const auto refusal = [](void (*change)(train::TrainerConfig&)) {
    const test::TemporaryFolder folder;
    train::TrainerConfig config = config_of(folder, kModels[0], {1, 2, 1});
    config.model.vocab_size = 257;
    change(config);
    try {
      config.resolve_and_validate(2);
    } catch (const core::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal([](train::TrainerConfig& c) {
              c.parallel.defer_embedding_wgrad_compute = true;
            }).find("--mtp-num-layers excludes --defer-embedding-wgrad-compute"),
            std::string::npos);
  EXPECT_NE(refusal([](train::TrainerConfig& c) {
              c.model.position_embedding_type = "learned_absolute";
            }).find("--mtp-num-layers and --position-embedding-type learned_absolute exclude each other"),
            std::string::npos);
  EXPECT_NE(refusal([](train::TrainerConfig& c) {
              c.training.mtp_loss_scaling_factor = -1;
            }).find("--mtp-loss-scaling-factor -1"),
            std::string::npos);
  EXPECT_NE(refusal([](train::TrainerConfig& c) {
              c.parallel.pipeline_model_parallel_layout = "Ett|ttmL";
            }).find("has 1 layers of multi-token prediction (m), but --mtp-num-layers is 2"),
            std::string::npos);
  EXPECT_EQ(refusal([](train::TrainerConfig& c) { c.parallel.pipeline_model_parallel_layout = "Ett|ttmmL"; }), "");
}

}  // namespace
}  // namespace ms
