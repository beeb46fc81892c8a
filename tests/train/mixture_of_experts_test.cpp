// Whole runs of models with experts: layouts against one rank, recomputation, resuming, dropping, auxiliary losses.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::Outcome;
using test::TinyLayout;

struct Model {
  const char* name;
  void (*change)(train::TrainerConfig&);
};
const Model kModels[] = {
    {"chosen", [](train::TrainerConfig&) {}},
    {"losses",
     [](train::TrainerConfig& config) {
       config.model.moe_layer_freq = "2";
       config.model.moe_router_pre_softmax = true;
       config.model.moe_shared_expert_intermediate_size = 20;
       config.model.moe_shared_expert_gate = true;
       config.training.moe_router_load_balancing_type = {"aux_loss", "seq_aux_loss"};
       config.training.moe_aux_loss_coeff = {0.02, 0.01};
       config.training.moe_z_loss_coeff = 0.001;
     }},
    {"sigmoid",
     [](train::TrainerConfig& config) {
       config.training.first_k_dense_replace = 1;
       config.training.n_shared_experts = 2;
       config.model.moe_router_score_function = "sigmoid";
       config.model.moe_router_num_groups = 3;
       config.model.moe_router_group_topk = 2;
       config.model.moe_router_topk_scaling_factor = 1.5;
       config.model.moe_router_enable_expert_bias = true;
       config.training.moe_router_bias_update_rate = 0.01;
       config.training.moe_aux_loss_coeff = {0.01};
       config.model.untie_embeddings_and_output_weights = false;
     }},
    {"dropped", [](train::TrainerConfig& config) { config.training.moe_expert_capacity_factor = 1.0; }},
};

train::TrainerConfig config_of(const test::TemporaryFolder& folder, const Model& model, const TinyLayout& layout = {}) {
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.num_experts = 6;
  config.model.moe_router_topk = 2;
  config.model.moe_ffn_hidden_size = 12;
  config.model.init_method_std = 0.1;  // scores that rounding does not reorder
  config.training.train_iters = 50;
  config.training.global_batch_size = 8;
  model.change(config);
  return config;
}

Outcome run(train::TrainerConfig config, const test::TemporaryFolder& folder, const TinyLayout& layout,
            const std::string& name) {
  return test::outcome_of(std::move(config), layout.ranks(), folder / name);
}

void expect_equal(const Outcome& seen, const Outcome& want) {
  ASSERT_EQ(seen.summary.steps.size(), want.summary.steps.size());
  for (size_t i = 0; i < want.summary.steps.size(); ++i) {
    EXPECT_EQ(seen.summary.steps[i].loss, want.summary.steps[i].loss) << "step " << i + 1;
    EXPECT_EQ(seen.summary.steps[i].grad_norm, want.summary.steps[i].grad_norm) << "step " << i + 1;
  }
  EXPECT_EQ(test::largest_distance(seen.weights, want.weights), 0);
}

void expect_near(const Outcome& seen, const Outcome& want) {
  ASSERT_EQ(seen.summary.steps.size(), want.summary.steps.size());
  for (size_t i = 0; i < want.summary.steps.size(); ++i) {
    const auto &a = seen.summary.steps[i], &b = want.summary.steps[i];
    EXPECT_NEAR(a.loss, b.loss, 1e-5 * b.loss) << "step " << i + 1;
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-3 * b.grad_norm) << "step " << i + 1;
  }
  EXPECT_LT(test::largest_distance(seen.weights, want.weights), 1e-4);
}

// Each choice of each token is sent to an expert, or dropped.
void expect_same_load(const train::ExpertLoads& seen, const train::ExpertLoads& want) {
  ASSERT_EQ(seen.size(), want.size());
  for (const auto& [layer, load] : want) {
    EXPECT_EQ(seen.at(layer).tokens, load.tokens) << "layer " << layer;
    EXPECT_EQ(seen.at(layer).dropped, load.dropped) << "layer " << layer;
    EXPECT_NEAR(seen.at(layer).losses.aux, load.losses.aux, 1e-6 * load.losses.aux) << "layer " << layer;
    const auto sent = std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0});
    EXPECT_EQ(sent + load.dropped, 8 * 16 * 2) << "samples, tokens of each, choices of each";
  }
}

const TinyLayout kLayouts[] = {
    // tp, pp, dp, zero, sp, vpp
    {1, 2, 1}, {1, 4, 1}, {1, 2, 1, false, false, 2}, {1, 1, 2}, {1, 1, 2, true}, {1, 1, 4, true}, {1, 2, 2, true},
};

class Experts : public testing::TestWithParam<size_t> {};

TEST_P(Experts, EveryLayoutAgreesWithOneRank) {
  const test::TemporaryFolder folder;
  const Model& model = kModels[GetParam()];
  const Outcome one = run(config_of(folder, model), folder, {}, "one");
  EXPECT_LT(one.summary.steps.back().loss, 0.85 * one.summary.steps.front().loss)
      << "it must learn, or equal losses say little";
  for (const TinyLayout& layout : kLayouts) {
    SCOPED_TRACE(layout.name());
    const Outcome seen = run(config_of(folder, model, layout), folder, layout, layout.name());
    layout.dp == 1 ? expect_equal(seen, one) : expect_near(seen, one);
    expect_same_load(seen.summary.steps.front().experts, one.summary.steps.front().experts);
  }
}

TEST_P(Experts, RecomputationChangesNoBit) {
  const test::TemporaryFolder folder;
  const Model& model = kModels[GetParam()];
  train::TrainerConfig config = config_of(folder, model);
  config.training.train_iters = 5;
  const Outcome plain = run(config, folder, {}, "plain");
  const auto peak = [](const Outcome& outcome) {
    return outcome.summary.steps.back().peak_bytes[static_cast<size_t>(core::MemoryTag::kAct)];
  };
  train::TrainerConfig outputs = config, whole = config, pairs = config;
  outputs.training.recompute_norm = outputs.training.recompute_activation_function = true;
  whole.training.recompute_granularity = pairs.training.recompute_granularity = "full";
  whole.training.recompute_method = pairs.training.recompute_method = "uniform";
  whole.training.recompute_num_layers = 1;
  pairs.training.recompute_num_layers = 2;
  for (const auto& [name, changed] : {std::pair{"outputs", outputs}, {"whole", whole}, {"pairs", pairs}}) {
    SCOPED_TRACE(name);
    const Outcome again = run(changed, folder, {}, name);
    expect_equal(again, plain);
    EXPECT_LT(peak(again), peak(plain));
  }
}

TEST_P(Experts, TenAndTenStepsEqualTwentyBitForBit) {
  const test::TemporaryFolder folder;
  const TinyLayout layout{1, 1, 2, true};
  train::TrainerConfig config = config_of(folder, kModels[GetParam()], layout);
  config.training.global_batch_size = 4;  // the whole run within an epoch, whose end would shuffle it otherwise
  config.training.train_iters = 20;
  const Outcome whole = run(config, folder, layout, "whole");
  config.training.train_iters = 10;
  run(config, folder, layout, "parts");
  config.training.train_iters = 20;
  config.checkpoint.load = folder / "parts";
  const Outcome second = run(config, folder, layout, "parts");
  ASSERT_EQ(second.summary.steps.size(), 10U);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(second.summary.steps[i].loss, whole.summary.steps[10 + i].loss) << i;
  for (const core::TensorRole role :
       {core::TensorRole::kParam, core::TensorRole::kExpAvg, core::TensorRole::kExpAvgSq, core::TensorRole::kBuffer})
    EXPECT_EQ(test::largest_distance(test::read_tensors(second.summary.checkpoint, role),
                                     test::read_tensors(whole.summary.checkpoint, role)),
              0);
}

TEST_P(Experts, RecomputedPartsChangeNoBit) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = config_of(folder, kModels[GetParam()]);
  config.training.train_iters = 3;
  const Outcome plain = run(config, folder, {}, "plain");
  const auto with_modules = [&](std::vector<std::string> modules) {
    train::TrainerConfig changed = config;
    changed.training.recompute_granularity = "selective";
    changed.training.recompute_modules = std::move(modules);
    return changed;
  };
  const auto with_level = [&](const char* level, std::optional<int64_t> layers) {
    train::TrainerConfig changed = config;
    changed.training.moe_zero_memory = level;
    changed.training.moe_zero_memory_num_layers = layers;
    return changed;
  };
  train::TrainerConfig whole = with_level("level1", {});
  whole.training.recompute_granularity = "full";
  whole.training.recompute_method = "uniform";
  whole.training.recompute_num_layers = 2;
  const std::vector<std::pair<const char*, train::TrainerConfig>> ways = {{"moe", with_modules({"moe"})},
                                                                          {"moe_act", with_modules({"moe_act"})},
                                                                          {"level0", with_level("level0", {})},
                                                                          {"level1", with_level("level1", {})},
                                                                          {"level1 of one", with_level("level1", 1)},
                                                                          {"whole layers, too", whole}};
  const auto peak = [](const Outcome& outcome) {
    return outcome.summary.steps.back().peak_bytes[static_cast<size_t>(core::MemoryTag::kAct)];
  };
  for (const auto& [name, changed] : ways) {
    SCOPED_TRACE(name);
    const Outcome again = run(changed, folder, {}, name);
    expect_equal(again, plain);
    EXPECT_LT(peak(again), peak(plain));
  }
  const Outcome shared = run(with_modules({"shared_experts"}), folder, {}, "shared");
  expect_equal(shared, plain);
  const bool has_shared =
      config.model.moe_shared_expert_intermediate_size > 0 || config.training.n_shared_experts.has_value();
  EXPECT_EQ(peak(shared) < peak(plain), has_shared);
}

// Of R rows: level0 drops what the experts read and the results of their activation, b R (h + f); level1 the results of
// linear_fc1, too, b R (h + 3 f), and the same of shared experts, b T 3 f. In one layer all is there at a time.
TEST(ExpertMemory, FallsByWhatIsDropped) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = config_of(folder, kModels[0]);
  constexpr int64_t kLayers = 16, kShared = 32;
  config.model.num_layers = kLayers;
  config.model.moe_ffn_hidden_size = 64;
  config.model.moe_shared_expert_intermediate_size = kShared;
  config.training.train_iters = 2;
  config.training.global_batch_size = 1;
  const auto peak = [&](const char* level) {
    config.training.moe_zero_memory = level;
    const Outcome outcome = run(config, folder, {}, level);
    return static_cast<double>(outcome.summary.steps.back().peak_bytes[static_cast<size_t>(core::MemoryTag::kAct)]);
  };
  const int64_t tokens = config.training.seq_length, rows = tokens * config.model.moe_router_topk;
  const int64_t h = config.model.hidden_size, f = config.model.moe_ffn_hidden_size;
  const double plain = peak("disable");
  const auto level0 = static_cast<double>(4 * kLayers * (rows * (h + f) + tokens * kShared));
  const auto level1 = static_cast<double>(4 * kLayers * (rows * (h + 3 * f) + tokens * 3 * kShared));
  EXPECT_NEAR(plain - peak("level0"), level0, 0.1 * level0);
  EXPECT_NEAR(plain - peak("level1"), level1, 0.1 * level1);
}

INSTANTIATE_TEST_SUITE_P(Models, Experts, testing::Range(size_t{0}, std::size(kModels)),
                         [](const auto& test) { return kModels[test.param].name; });

// Auxiliary losses are scaled with the main loss: neither a loss scale nor the way to average tokens changes a step.
TEST(ExpertLosses, AreScaledWithTheMainLoss) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = config_of(folder, kModels[1]);
  config.training.train_iters = 5;
  config.training.moe_aux_loss_coeff = {2, 1};
  const Outcome plain = run(config, folder, {}, "plain");
  train::TrainerConfig without = config;
  without.training.moe_aux_loss_coeff = {0, 0};
  EXPECT_GT(test::largest_distance(run(without, folder, {}, "without").weights, plain.weights), 1e-3);
  config.training.calculate_per_token_loss = true;
  expect_near(run(config, folder, {}, "per_token"), plain);
}

// An expert that no token was sent to has a gradient of zero: its moments stay 0, and weight decay alone moves it.
TEST(ExpertLosses, IdleExpertsHaveGradientsOfZero) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = config_of(folder, kModels[0]);
  config.training.train_iters = 1;
  config.training.global_batch_size = 1;
  config.training.seq_length = 2;
  config.model.num_experts = 16;
  config.model.moe_router_topk = 1;
  config.model.moe_router_pre_softmax = true;
  const Outcome one = run(config, folder, {}, "one");
  const auto moments = test::read_tensors(one.summary.checkpoint, core::TensorRole::kExpAvgSq);
  int idle = 0, used = 0;
  for (const auto& [name, values] : moments) {
    if (name.find(".experts.") == std::string::npos) continue;
    const bool is_zero = std::ranges::all_of(values, [](float value) { return value == 0; });
    ++(is_zero ? idle : used);
  }
  EXPECT_GT(idle, 0);
  EXPECT_GT(used, 0);
}

struct Refused {
  const char* words;  // in the message
  core::ErrorCode code;
  void (*change)(train::TrainerConfig&);
};

TEST(ExpertFlags, WhatIsNotTrainedIsRefusedByName) {
  constexpr auto kUnsupported = core::ErrorCode::kUnsupported, kInvalid = core::ErrorCode::kInvalidArgument;
  const Refused cases[] = {
      {"--use-nanopipe-swap", kUnsupported,
       [](train::TrainerConfig& c) {
         c.parallel.pipeline_model_parallel_size = 2;
         c.parallel.num_virtual_stages_per_pipeline_rank = 2;
         c.parallel.use_nanopipe = c.parallel.use_nanopipe_swap = true;
       }},
      {"--moe-experts-pipeline-degree 1: at least 2", kInvalid,
       [](train::TrainerConfig& c) { c.parallel.moe_experts_pipeline_degree = 1; }},
      {"--moe-experts-pipeline-degree 4: not a divisor of the 6 experts", kInvalid,
       [](train::TrainerConfig& c) { c.parallel.moe_experts_pipeline_degree = 4; }},
      {"it draws 2 experts for each token", kInvalid,
       [](train::TrainerConfig& c) {
         c.training.moe_router_load_balancing_type = {"sparsemixer_topk"};
         c.model.moe_router_topk = 3;
       }},
      {"sparsemixer_topk has no auxiliary loss", kInvalid,
       [](train::TrainerConfig& c) {
         c.training.moe_router_load_balancing_type = {"sparsemixer_topk"};
         c.training.moe_aux_loss_coeff = {0.1};
       }},
      {"sparsemixer_topk excludes --moe-router-score-function", kInvalid,
       [](train::TrainerConfig& c) {
         c.training.moe_router_load_balancing_type = {"sparsemixer_topk"};
         c.model.moe_router_score_function = "sqrtsoftplus";
       }},
      {"group_limited_greedy needs --moe-router-num-groups and --moe-router-group-topk", kInvalid,
       [](train::TrainerConfig& c) { c.training.moe_router_load_balancing_type = {"group_limited_greedy"}; }},
      {"pai_megatron_aux_loss excludes --moe-router-score-function sigmoid", kInvalid,
       [](train::TrainerConfig& c) {
         c.training.moe_router_load_balancing_type = {"pai_megatron_aux_loss"};
         c.model.moe_router_score_function = "sigmoid";
       }},
      {"--moe-input-jitter-eps", kInvalid, [](train::TrainerConfig& c) { c.training.moe_input_jitter_eps = 1; }},
      {"--moe-router-load-balancing-type wrong", kInvalid,
       [](train::TrainerConfig& c) { c.training.moe_router_load_balancing_type = {"wrong"}; }},
      {"--moe-aux-loss-coeff", kInvalid,
       [](train::TrainerConfig& c) {
         c.training.moe_aux_loss_coeff = {0.1, 0.2};
       }},
      {"--moe-aux-loss-coeff", kInvalid,
       [](train::TrainerConfig& c) {
         c.training.moe_router_load_balancing_type = {"sinkhorn"};
         c.training.moe_aux_loss_coeff = {0.1};
       }},
      {"--moe-z-loss-coeff", kInvalid, [](train::TrainerConfig& c) { c.training.moe_z_loss_coeff = -1; }},
      {"--moe-expert-capacity-factor", kInvalid,
       [](train::TrainerConfig& c) { c.training.moe_expert_capacity_factor = 0; }},
      {"--moe-token-drop-policy", kInvalid, [](train::TrainerConfig& c) { c.training.moe_token_drop_policy = "x"; }},
      {"--moe-router-group-topk", kInvalid,
       [](train::TrainerConfig& c) {
         c.model.moe_router_num_groups = 3;
         c.model.moe_router_group_topk = 3;
       }},
      {"--freeze-parameters", kUnsupported,
       [](train::TrainerConfig& c) { c.optimizer.freeze_parameters = "local_experts.1.linear_fc1"; }},
      {"--n-shared-experts", kInvalid,
       [](train::TrainerConfig& c) {
         c.training.n_shared_experts = 2;
         c.model.moe_shared_expert_intermediate_size = 7;
       }},
      {"--moe-router-pre-softmax", kInvalid, [](train::TrainerConfig& c) { c.model.moe_router_topk = 1; }},
      {"none of 4 layers has experts", kInvalid, [](train::TrainerConfig& c) { c.training.first_k_dense_replace = 4; }},
      {"--n-shared-experts needs --num-experts", kInvalid,
       [](train::TrainerConfig& c) {
         c.training.n_shared_experts = 2;
         c.model.num_experts = 0;
       }},
  };
  const test::TemporaryFolder folder;
  for (const Refused& one : cases) {
    train::TrainerConfig config = config_of(folder, kModels[0]);
    config.model.vocab_size = 257;
    one.change(config);
    const test::Thrown thrown = test::thrown_by([&] { config.resolve_and_validate(4); });
    EXPECT_EQ(thrown.code, one.code) << thrown.text;
    EXPECT_NE(thrown.text.find(one.words), std::string::npos) << thrown.text;
  }
}

TEST(ExpertFlags, StandForFieldsOfTheModel) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = config_of(folder, kModels[2]);
  config.model.vocab_size = 257;
  for (int twice = 0; twice < 2; ++twice) {
    config.resolve_and_validate(1);
    EXPECT_EQ(config.model.layers_with_experts(), (std::vector<bool>{false, true, true, true}));
    EXPECT_EQ(config.model.moe_shared_expert_intermediate_size, 24);
  }
  config.training.first_k_dense_replace = -1;  // as MindSpeed-LLM's scripts say it
  config.model.moe_layer_freq = "-1";
  config.resolve_and_validate(1);
  EXPECT_EQ(config.model.moe_layer_freq, "1");
}

// As in MindSpeed-LLM, whose softmax_topk has one. A notice says it.
TEST(ExpertFlags, ABiasOfSoftmaxScoresMovesTheChoiceOfSoftmaxTopkAlone) {
  const test::TemporaryFolder folder;
  for (const std::string type : {"aux_loss", "softmax_topk"}) {
    train::TrainerConfig config = config_of(folder, kModels[0]);
    config.training.train_iters = 4;
    config.training.moe_router_load_balancing_type = {type};
    const Outcome without = run(config, folder, {}, type + "_without");
    config.model.moe_router_enable_expert_bias = true;
    config.training.moe_router_bias_update_rate = 0.5;
    const Outcome with = run(config, folder, {}, type + "_with");
    EXPECT_EQ(test::largest_distance(with.weights, without.weights) == 0, type == "aux_loss");
    config.model.vocab_size = 257;
    config.resolve_and_validate(1);
    EXPECT_EQ(train::mixture_of_experts_feature().notices(config).size(), type == "aux_loss" ? 1U : 0U);
  }
}

// What MindSpeed-LLM's scripts say, and what its router makes of it.
TEST(ExpertFlags, BalancingTypesOfMindSpeedLlmStandForLosses) {
  const test::TemporaryFolder folder;
  const auto resolved = [&](const std::string& type, bool seq_aux, bool normalizes) {
    train::TrainerConfig config = config_of(folder, kModels[0]);
    config.model.vocab_size = 257;
    config.training.moe_router_load_balancing_type = {type};
    config.training.moe_aux_loss_coeff = {0.01};
    config.training.seq_aux = seq_aux;
    config.training.norm_topk_prob = normalizes;
    if (type == "group_limited_greedy") config.model.moe_router_group_topk = 1;
    config.parallel.expert_model_parallel_size = 2;
    for (int twice = 0; twice < 2; ++twice) config.resolve_and_validate(2);
    return config;
  };
  const auto coefficients = [](const train::TrainerConfig& config) {
    return std::vector{train::balancing_coefficient(config.training, train::kAuxLoss),
                       train::balancing_coefficient(config.training, train::kSeqAuxLoss),
                       train::balancing_coefficient(config.training, train::kGlobalAuxLoss)};
  };
  EXPECT_EQ(coefficients(resolved("none", true, false)), (std::vector{0.0, 0.01, 0.0}));
  EXPECT_EQ(coefficients(resolved("none", false, false)), (std::vector{0.0, 0.0, 0.0}));
  EXPECT_EQ(coefficients(resolved("global_aux_loss", false, false)), (std::vector{0.0, 0.0, 0.01}));
  const train::TrainerConfig pai = resolved("pai_megatron_aux_loss", true, true);
  EXPECT_EQ(coefficients(pai), (std::vector{0.01, 0.0, 0.0}));
  EXPECT_TRUE(pai.model.moe_router_pre_softmax);
  for (const bool seq_aux : {false, true}) {
    const train::TrainerConfig groups = resolved("group_limited_greedy", seq_aux, seq_aux);
    EXPECT_EQ(coefficients(groups), seq_aux ? (std::vector{0.0, 0.01, 0.0}) : (std::vector{0.01, 0.0, 0.0}));
    EXPECT_EQ(groups.model.moe_router_pre_softmax, !seq_aux) << "as --norm-topk-prob says";
    EXPECT_EQ(groups.model.moe_router_num_groups, 2) << "one for each rank";
  }
}

}  // namespace
}  // namespace ms
