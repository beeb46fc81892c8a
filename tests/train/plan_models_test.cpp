// Plans and runs of models with latent attention and with experts.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"
#include "tests/support/planned_run.h"

namespace ms {
namespace {

using test::TinyLayout;

// In fp32 activations, too, are what the plan says, to the byte.
TEST(PlanOfModels, EqualsTheRunOfLatentAttention) {
  const TinyLayout layouts[] = {{1, 1, 1, false, false, 1},
                                {2, 1, 1, false, false, 1},
                                {2, 1, 2, true, true, 1},
                                {2, 2, 1, false, true, 2},
                                {1, 2, 2, 2, false, 1},
                                {2, 1, 2, 3, true, 1},
                                {2, 2, 1, false, true, 1, "zb-v"},
                                {2, 2, 1, false, true, 1, "dualpipev"}};
  const test::PlanMode changes[] = {
      {"plain", [](train::TrainerConfig&) {}},
      {"without a vector of queries and norms",
       [](train::TrainerConfig& config) {
         config.model.q_lora_rank = 0;
         config.model.qk_layernorm = false;
       }},
      {"up projections and norms recomputed",
       [](train::TrainerConfig& config) {
         config.training.recompute_mla_up_proj = config.training.recompute_norm = true;
       }},
      {"up projections and norms recomputed, without a vector of queries",
       [](train::TrainerConfig& config) {
         config.model.q_lora_rank = 0;
         config.training.recompute_mla_up_proj = config.training.recompute_norm = true;
       }},
      {"a layer recomputed whole, up projections of the others",
       [](train::TrainerConfig& config) {
         test::kPlanModes[test::kPlanBlock].set(config);
         config.training.recompute_mla_up_proj = true;
       }},
      {"bf16", [](train::TrainerConfig& config) { config.training.bf16 = true; }},
      {"swapped", test::swap_all},
      {"frozen parts",
       [](train::TrainerConfig& config) { config.optimizer.freeze_parameters = "linear_q_up|kv_up_proj.w|kv_down"; }},
      {"a norm behind it",
       [](train::TrainerConfig& config) {
         config.model.normalization = "LayerNorm";
         config.model.post_norm = true;
       }},
  };
  const auto model = [](train::TrainerConfig& config) {
    test::set_layers(config, 8);
    test::use_latent_attention(config);
  };
  test::expect_plans_equal_runs(layouts, changes, test::PlanTable::kDiagonals, model, /*exact=*/true);
}

// Latent attention of ranks that share sequences, whose keys travel again where they are run again.
TEST(PlanOfModels, EqualsTheRunOfLatentAttentionThatIsRecomputed) {
  const TinyLayout layouts[] = {{.cp = 4, .context = "p2p"},
                                {.cp = 4, .context = "p2p w2"},
                                {.tp = 2, .sp = true, .cp = 2, .context = "a2a"},
                                {.pp = 2, .zero = 1, .cp = 2, .context = "all_gather"},
                                {.cp = 4, .context = "a2a+p2p"},
                                {.cp = 4, .context = "a2a,p2p,a2a+p2p,all_gather"}};
  // Of which ranks hold different numbers of blocks.
  const TinyLayout adaptive[] = {{.cp = 4, .context = "adaptive"}, {.cp = 4, .context = "hybrid_adaptive"}};
  const test::PlanMode changes[] = {
      {"all layers", [](train::TrainerConfig& config) { config.training.recompute_mla_up_proj = true; }},
      {"with norms, without a vector of queries", [](train::TrainerConfig& config) {
         config.model.q_lora_rank = 0;
         config.training.recompute_mla_up_proj = config.training.recompute_norm = true;
       }}};
  const auto model = [](train::TrainerConfig& config) {
    test::set_layers(config, 8);
    test::use_latent_attention(config);
  };
  test::expect_plans_equal_runs(layouts, changes, test::PlanTable::kDiagonals, model, /*exact=*/true);
  test::expect_plans_equal_runs(adaptive, changes, test::PlanTable::kDiagonals, model);
}

// Ranks that exchange heads and gather the one head of keys that each of them needs.
TEST(PlanOfModels, EqualsTheRunOfGatheredKeys) {
  const TinyLayout layouts[] = {{1, 1, 1, false, false, 1, "", "", 4, "a2a"},
                                {2, 1, 1, true, true, 1, "", "", 2, "a2a"},
                                {1, 2, 1, 2, false, 2, "", "", 2, "a2a"},
                                {1, 1, 1, false, false, 1, "", "", 4, "a2a+p2p half"},
                                {1, 1, 1, false, false, 1, "", "", 4, "a2a,p2p,a2a+p2p,all_gather"}};
  const test::PlanMode changes[] = {
      test::kPlanModes[0], test::kPlanModes[test::kPlanBlock], {"swapped", test::swap_all}};
  const auto model = [](train::TrainerConfig& config) {
    test::set_layers(config, 8);
    config.model.num_query_groups = 1;
    config.parallel.use_ulysses_allgather_kv = true;
  };
  test::expect_plans_equal_runs(layouts, changes, test::PlanTable::kWhole, model, /*exact=*/true);
}

TEST(PlanOfModels, EqualsTheRunOfLayersWithExperts) {
  const test::PlanMode kinds[] = {
      {"all layers", [](train::TrainerConfig&) {}},
      {"some layers, shared experts",
       [](train::TrainerConfig& config) {
         config.model.moe_layer_freq = "2";
         config.model.moe_shared_expert_intermediate_size = 40;
       }},
      {"a gate",
       [](train::TrainerConfig& config) {
         config.model.moe_shared_expert_intermediate_size = 40;
         config.model.moe_shared_expert_gate = true;
         config.training.moe_aux_loss_coeff = {0.01};
       }},
      {"frozen experts",
       [](train::TrainerConfig& config) { config.optimizer.freeze_parameters = "experts.*fc1|layers.1.*router"; }},
  };
  const TinyLayout layouts[] = {{}, {1, 2, 1}, {1, 2, 2, 1}, {1, 2, 1, 0, false, 2}, {1, 2, 2, 2}, {1, 2, 2, 3}};
  for (const test::PlanMode& kind : kinds) {
    for (const TinyLayout& layout : layouts) {
      for (const test::PlanMode& mode : test::kPlanModes) {
        if (std::string_view(mode.name).starts_with("swap")) continue;
        if (!test::plan_is_due((&kind - kinds) + (&layout - layouts) + (&mode - test::kPlanModes))) continue;
        SCOPED_TRACE(core::cat(kind.name, ", ", layout.name(), ", ", mode.name));
        const test::TemporaryFolder folder;
        train::TrainerConfig config = test::tiny_config(folder.path(), layout);
        config.model.num_experts = 5;
        config.model.moe_ffn_hidden_size = 24;
        config.model.moe_router_topk = 3;
        config.training.global_batch_size = 8;
        kind.set(config);
        mode.set(config);
        test::expect_plan_equals_run(config, layout.ranks());
      }
    }
  }
}

void overlap_experts(train::TrainerConfig& config) {
  const bool gathers = config.parallel.moe_token_dispatcher_type == "allgather";
  (gathers ? config.parallel.moe_allgather_overlap_comm : config.parallel.moe_alltoall_overlap_comm) = true;
}

struct ExpertRow {
  TinyLayout layout;
  int ep = 1, etp = 1;
  const char* dispatcher = "alltoall";
  int instances = 1;
  bool divides_state = false;  // over them

  std::string name() const {
    return core::cat(layout.name(), ", EP ", ep, ", ETP ", etp, ", ", dispatcher, ", ", instances,
                     divides_state ? " that divide the state" : "");
  }
  // All experts have the same number of tokens.
  train::TrainerConfig config(const std::filesystem::path& folder) const {
    train::TrainerConfig config = test::tiny_config(folder, layout);
    config.model.num_experts = 8;
    config.model.moe_ffn_hidden_size = 24;
    config.model.moe_router_topk = 2;
    config.training.fix_router = true;
    config.parallel.expert_model_parallel_size = ep;
    config.parallel.expert_tensor_parallel_size = etp;
    test::set_dispatcher(config, dispatcher, ep, layout.tp);
    config.parallel.num_distributed_optimizer_instances = instances;
    config.parallel.outer_dp_sharding_strategy = divides_state ? "optim" : "no_shard";
    config.training.global_batch_size = 8;
    return config;
  }
};

TEST(PlanOfModels, EqualsTheRunOfExpertsOnSeveralRanks) {
  const ExpertRow rows[] = {{{1, 1, 2}, 2, 1, "alltoall"},
                            {{1, 1, 4, true}, 2, 1, "allgather"},
                            {{1, 2, 2, true}, 2, 1, "alltoall"},
                            {{2, 1, 1, false, true}, 1, 2, "alltoall"},
                            {{2, 1, 1, true, true}, 1, 1, "alltoall"},
                            {{2, 1, 2, true, true}, 2, 2, "alltoall"},
                            {{2, 1, 2, true, true}, 2, 2, "allgather"},
                            {{2, 1, 2, false, true}, 4, 1, "alltoall"},
                            {{2, 2, 2, true, true, 2}, 2, 1, "allgather"},
                            {{1, 1, 4, 2}, 2, 1, "alltoall"},
                            {{1, 1, 4, 3}, 4, 1, "alltoall"},
                            {{2, 1, 2, 3, true}, 2, 1, "alltoall"},
                            {{2, 2, 2, 2, true}, 2, 2, "alltoall"},
                            {{1, 1, 1, 1, false, 1, "", "", 2, "a2a"}, 2, 1, "alltoall"},
                            {{1, 1, 2, 3, false, 1, "", "", 2, "p2p"}, 2, 1, "alltoall"},
                            {{2, 1, 1, 0, true, 1, "", "", 2, "all_gather"}, 2, 2, "allgather"},
                            {{1, 1, 8, 1}, 2, 1, "alltoall", 2},
                            {{1, 1, 8, 3}, 2, 1, "alltoall", 2},
                            {{2, 1, 4, 3, true}, 2, 1, "alltoall", 2, true},
                            {{2, 1, 1, false, true}, 1, 2, "groups"},
                            {{1, 1, 4, true}, 2, 1, "groups"},
                            {{2, 1, 2, true, true}, 2, 2, "groups"},
                            {{2, 1, 2, true, true}, 4, 1, "hierarchical"},
                            {{2, 1, 4, true, true}, 8, 1, "hierarchical"},
                            {{2, 2, 2, false, true}, 4, 1, "hierarchical"}};
  const test::PlanMode kinds[] = {
      {"all layers, with a loss", [](train::TrainerConfig& config) { config.training.moe_aux_loss_coeff = {0.01}; }},
      {"a loss of the step, whole micro-batches, overlapped exchanges",
       [](train::TrainerConfig& config) {
         config.training.moe_router_load_balancing_type = {"global_aux_loss"};
         config.training.moe_aux_loss_coeff = {0.01};
         config.training.moe_expert_capacity_factor = 2;
         config.model.moe_shared_expert_intermediate_size = 40;
         overlap_experts(config);
       }},
      {"sinkhorn, overlapped exchanges, a gate",
       [](train::TrainerConfig& config) {
         config.training.moe_router_load_balancing_type = {"sinkhorn"};
         config.model.moe_shared_expert_intermediate_size = 40;
         config.model.moe_shared_expert_gate = true;
         overlap_experts(config);
       }},
      {"some layers, shared experts with a gate",
       [](train::TrainerConfig& config) {
         config.model.moe_layer_freq = "2";
         config.model.moe_shared_expert_intermediate_size = 40;
         config.model.moe_shared_expert_gate = true;
       }},
      {"samples of their own length, all of them whole",
       [](train::TrainerConfig& config) { config.parallel.variable_seq_lengths = true; }},
      {"buckets, shared experts, zeros counted",
       [](train::TrainerConfig& config) {
         config.model.moe_shared_expert_intermediate_size = 40;
         config.parallel.overlap_grad_reduce = true;
         config.parallel.overlap_param_gather = config.parallel.use_distributed_optimizer;
         config.parallel.ddp_num_buckets = 3;
         config.logger.log_num_zeros_in_grad = true;
       }},
  };
  for (const ExpertRow& row : rows) {
    for (const test::PlanMode& kind : kinds) {
      for (const size_t mode : {size_t{0}, size_t{2}, size_t{4}}) {
        const bool is_long = std::string_view(kind.name).find("overlapped") != std::string_view::npos;
        if (is_long && (mode == 2 || row.layout.pp > 1)) continue;
        if (!test::plan_is_due((&kind - kinds) + (&row - rows) + static_cast<std::ptrdiff_t>(mode / 2))) continue;
        SCOPED_TRACE(core::cat(row.name(), ", ", kind.name, ", ", test::kPlanModes[mode].name));
        const test::TemporaryFolder folder;
        train::TrainerConfig config = row.config(folder.path());
        kind.set(config);
        test::kPlanModes[mode].set(config);
        test::expect_plan_equals_run(config, row.layout.ranks());
      }
    }
  }
}

// Pairs whose exchanges are interleaved, and gradients of experts' weights that are computed apart.
// Logits of many experts, gathered over TP and then over the ranks that share a sequence: both are there at once.
TEST(PlanOfModels, EqualsTheRunOfLogitsThatAreGatheredTwice) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = ExpertRow{{2, 1, 1, false, true, 1, "", "", 2, "a2a"}, 1, 1}.config(folder.path());
  config.model.num_experts = 512;
  config.training.moe_router_load_balancing_type = {"sinkhorn"};
  test::expect_plan_equals_run(config, 4, /*exact=*/true);
}

TEST(PlanOfModels, EqualsTheRunOfExpertsInOtherSchedules) {
  const struct {
    ExpertRow row;
    bool interleaves;
  } rows[] = {{{{1, 2, 2, true, false, 1, "dualpipev"}, 2, 1}, true},
              {{{1, 1, 2}, 2, 1}, true},
              {{{1, 2, 2, false, false, 2}, 2, 1}, true},
              {{{2, 2, 1, false, true, 2}, 1, 2}, true},
              {{{2, 2, 2, true, true, 1, "dualpipev delayed"}, 2, 2}, true},
              {{{2, 2, 1, false, true, 1, "dualpipev delayed"}, 2, 1}, true},
              {{{1, 2, 2, false, false, 1, "dualpipev detached"}, 2, 1}, false},
              {{{1, 2, 2, true, false, 1, "zb-h1"}, 2, 1, "allgather"}, false},
              {{{2, 2, 1, false, true, 1, "zb-v"}, 1, 2}, false},
              {{{1, 2, 2, 2, false, 2, "nanopipe"}, 2, 1}, false}};
  const test::PlanMode kinds[] = {
      {"all layers", [](train::TrainerConfig&) {}},
      {"some layers, a shared expert, overlapped exchanges",
       [](train::TrainerConfig& config) {
         config.model.moe_layer_freq = "([1,0,1,1])";
         config.model.moe_shared_expert_intermediate_size = 40;
         overlap_experts(config);
       }},
      {"a norm behind, a shared expert",
       [](train::TrainerConfig& config) {
         config.model.post_norm = true;
         config.model.moe_shared_expert_intermediate_size = 40;
       }},
      {"level0, a shared expert with a gate",
       [](train::TrainerConfig& config) {
         config.training.moe_zero_memory = "level0";
         config.model.moe_shared_expert_intermediate_size = 40;
         config.model.moe_shared_expert_gate = true;
       }},
  };
  for (const auto& [row, interleaves] : rows) {
    for (const test::PlanMode& kind : kinds) {
      SCOPED_TRACE(core::cat(row.name(), ", ", kind.name));
      const test::TemporaryFolder folder;
      train::TrainerConfig config = row.config(folder.path());
      config.parallel.moe_fb_overlap = interleaves;
      kind.set(config);
      test::expect_plan_equals_run(config, row.layout.ranks());
    }
  }
}

TEST(PlanOfModels, EqualsTheRunOfRecomputedExperts) {
  const ExpertRow rows[] = {{{}, 1, 1, "alltoall"},
                            {{1, 2, 2, true}, 2, 1, "alltoall"},
                            {{2, 1, 1, true, true}, 2, 1, "alltoall"},
                            {{2, 1, 2, true, true}, 2, 2, "allgather"},
                            {{2, 1, 2, true, true}, 4, 1, "hierarchical"},
                            {{.cp = 2}, 2, 1}};
  const test::PlanMode kinds[] = {
      {"moe", [](train::TrainerConfig& config) { config.training.moe_layer_recompute = true; }},
      {"adaptive, an even load",
       [](train::TrainerConfig& config) { config.training.moe_adaptive_recompute_activation = true; }},
      {"adaptive, a capacity",
       [](train::TrainerConfig& config) {
         config.training.moe_adaptive_recompute_activation = true;
         config.training.moe_expert_capacity_factor = 1;
       }},
      {"level0, overlapped",
       [](train::TrainerConfig& config) {
         config.training.moe_zero_memory = "level0";
         overlap_experts(config);
       }},
      {"level1 of one layer",
       [](train::TrainerConfig& config) {
         config.training.moe_zero_memory = "level1";
         config.training.moe_zero_memory_num_layers = 1;
         config.model.moe_shared_expert_gate = true;
       }},
      {"level1, overlapped",
       [](train::TrainerConfig& config) {
         config.training.moe_zero_memory = "level1";
         overlap_experts(config);
       }},
      {"swapped", [](train::TrainerConfig& config) { test::swap_all(config); }},
      {"a norm behind", [](train::TrainerConfig& config) { config.model.post_norm = true; }},
      {"a norm behind, layers run again",
       [](train::TrainerConfig& config) {
         config.model.post_norm = true;
         test::kPlanModes[test::kPlanUniform].set(config);
       }},
      {"a norm behind, moe",
       [](train::TrainerConfig& config) { config.model.post_norm = config.training.moe_layer_recompute = true; }},
      {"shared_experts, moe_act",
       [](train::TrainerConfig& config) {
         config.training.recompute_granularity = "selective";
         config.training.recompute_modules = {"shared_experts", "moe_act"};
         config.model.moe_shared_expert_gate = true;
       }},
  };
  for (const ExpertRow& row : rows) {
    for (const test::PlanMode& kind : kinds) {
      if (!test::plan_is_due((&kind - kinds) + (&row - rows))) continue;
      SCOPED_TRACE(core::cat(row.name(), ", ", kind.name));
      const test::TemporaryFolder folder;
      train::TrainerConfig config = row.config(folder.path());
      config.model.moe_shared_expert_intermediate_size = 40;
      kind.set(config);
      test::expect_plan_equals_run(config, row.layout.ranks());
    }
  }
}

}  // namespace
}  // namespace ms
