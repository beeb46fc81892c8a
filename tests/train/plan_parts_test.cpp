// Plans and runs of what communicates besides the layers: parts of a model, optimizers, buckets, instances, query
// groups.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/planned_run.h"

namespace ms {
namespace {

using test::TinyLayout;

TEST(PlanOfParts, EqualsTheRunForEachPartThatCommunicates) {
  const TinyLayout layouts[] = {{2, 2, 2, true, true, 2},
                                {2, 2, 1, false, false, 1},
                                {2, 1, 2, true, false, 1},
                                {2, 1, 2, 2, true, 1},
                                {1, 2, 2, 2, false, 1},
                                {2, 1, 2, 3, true, 1},
                                {1, 2, 2, 3, false, 1},
                                {2, 2, 2, 3, true, 1, "zb-v"},
                                {2, 2, 2, 2, true, 1, "zb-v"},
                                {2, 2, 1, false, true, 1, "zb-v"},
                                {2, 2, 1, false, false, 1, "dualpipev delayed"}};
  const test::PlanMode changes[] = {
      {"tied embeddings",
       [](train::TrainerConfig& config) { config.model.untie_embeddings_and_output_weights = false; }},
      {"norms of heads", [](train::TrainerConfig& config) { config.model.qk_layernorm = true; }},
      {"one query group, norms of heads",
       [](train::TrainerConfig& config) {
         config.model.num_query_groups = 1;
         config.model.qk_layernorm = true;
       }},
      {"one query group with output gates, micro-batches of 2",
       [](train::TrainerConfig& config) {
         config.model.num_query_groups = 1;
         config.model.attention_output_gate = true;
         config.training.micro_batch_size = 2;
       }},
      {"attention swapped",
       [](train::TrainerConfig& config) {
         config.training.swap_attention = true;
         config.training.swap_min_tensor_kib = 0;
       }},
      {"norms of heads, swapped from 2 KiB on",
       [](train::TrainerConfig& config) {
         config.model.qk_layernorm = true;
         test::swap_all(config);
         config.training.swap_min_tensor_kib = 2;
       }},
      {"norms behind attention and MLP, recomputed",
       [](train::TrainerConfig& config) {
         config.model.post_norm = true;
         test::kPlanModes[test::kPlanUniform].set(config);
       }},
      {"GPT",
       [](train::TrainerConfig& config) {
         config.model.normalization = "LayerNorm";
         config.model.position_embedding_type = "learned_absolute";
         config.model.swiglu = false;
         config.model.add_bias_linear = true;
       }},
      {"bf16", [](train::TrainerConfig& config) { config.training.bf16 = true; }},
      {"bf16 with shared master weights",
       [](train::TrainerConfig& config) { config.training.bf16 = config.optimizer.reuse_fp32_param = true; }},
      {"a window in every other layer",
       [](train::TrainerConfig& config) {
         config.model.sliding_window = 5;
         config.model.window_attn_skip_freq = "2";
       }},
      {"loss in chunks",
       [](train::TrainerConfig& config) {
         if (!config.parallel.use_megatron_fsdp) config.training.loss_chunk_size = 5;  // exclude each other
       }},
      {"zeros and norms counted",
       [](train::TrainerConfig& config) {
         config.logger.log_num_zeros_in_grad = config.logger.log_params_norm = true;
       }},
      {"TP-PP-DP order", [](train::TrainerConfig& config) { config.parallel.use_tp_pp_dp_mapping = true; }},
      {"micro-batches of 2", [](train::TrainerConfig& config) { config.training.micro_batch_size = 2; }},
  };
  test::expect_plans_equal_runs(layouts, changes, test::PlanTable::kDiagonals, [](train::TrainerConfig&) {});
}

// In fp32 activations, too, are what the plan says, to the byte.
TEST(PlanOfParts, EqualsTheRunOfRanksThatShareSequences) {
  const TinyLayout layouts[] = {{1, 1, 1, false, false, 1, "", "", 2, "a2a"},
                                {2, 1, 1, true, true, 1, "", "", 4, "a2a"},
                                {2, 2, 1, false, true, 2, "", "", 2, "a2a"},
                                {1, 2, 2, 3, false, 1, "zb-v", "", 2, "a2a"},
                                {2, 1, 2, true, true, 1, "", "", 2, "all_gather"},
                                {1, 1, 1, false, false, 1, "", "", 4, "all_gather"},
                                {1, 2, 1, false, false, 1, "zb-h1", "", 2, "all_gather"},
                                {1, 1, 1, false, false, 1, "", "", 2, "p2p"},
                                {2, 1, 1, true, true, 1, "", "", 4, "p2p"},
                                {2, 2, 1, false, true, 2, "", "", 2, "p2p"},
                                {1, 2, 1, 3, false, 1, "zb-v", "", 2, "p2p"},
                                {1, 1, 1, false, false, 1, "", "", 4, "p2p w2 full"},
                                {2, 1, 1, true, true, 1, "", "", 2, "p2p half"},
                                {1, 2, 1, 2, false, 2, "", "", 2, "p2p full i2"},
                                {2, 1, 1, true, true, 1, "", "", 4, "a2a,a2a+p2p,p2p,all_gather"},
                                {1, 2, 1, 3, false, 1, "zb-v", "", 2, "a2a,p2p"},
                                {1, 2, 1, false, false, 1, "", "", 4, "a2a+p2p,p2p,a2a half"}};
  const test::PlanMode changes[] = {
      {"plain", [](train::TrainerConfig&) {}},
      {"one query group, norms of heads",
       [](train::TrainerConfig& config) {
         config.model.num_query_groups = 1;
         config.model.qk_layernorm = true;
       }},
      {"latent attention", test::use_latent_attention},
      {"output gates", [](train::TrainerConfig& config) { config.model.attention_output_gate = true; }},
      {"all that can leaves memory", test::swap_all},
      {"norms behind attention and MLP, recomputed, tied embeddings",
       [](train::TrainerConfig& config) {
         config.model.post_norm = true;
         config.model.untie_embeddings_and_output_weights = false;
         test::kPlanModes[test::kPlanUniform].set(config);
       }},
      {"micro-batches of 2, a window in every other layer, norms dropped",
       [](train::TrainerConfig& config) {
         config.training.micro_batch_size = 2;
         config.training.recompute_norm = true;
         config.model.sliding_window = 5;
         config.model.window_attn_skip_freq = "2";
       }},
      {"bf16", [](train::TrainerConfig& config) { config.training.bf16 = true; }},
      {"exchanges of heads, rings and gathers of keys in turns",
       [](train::TrainerConfig& config) {
         config.parallel.cp_comm_type = {"p2p", "all_gather", "a2a", "p2p", "p2p", "a2a", "p2p", "all_gather"};
       }},
      {"a prefix of more than half a sample",
       [](train::TrainerConfig& config) {
         config.training.sparse_mode = 5;
         config.training.prefix_length = 11;
       }},
      {"a grid",
       [](train::TrainerConfig& config) {
         config.training.attention_mask_grid = MS_TEST_DATA "/train/mask_grids/causal_8.txt";
       }},
      {"a general grid",
       [](train::TrainerConfig& config) {
         config.training.attention_mask_grid = MS_TEST_DATA "/train/mask_grids/general_16.txt";
         config.training.attention_mask_type = "general";
       }},
  };
  test::expect_plans_equal_runs(
      layouts, changes, test::PlanTable::kDiagonals, [](train::TrainerConfig& config) { test::set_layers(config, 8); },
      /*exact=*/true);
}

// Which blocks travel depends on the prefix, as much as the scores of each rank do.
TEST(PlanOfParts, EqualsTheRunOfPrefixesAndAdaptiveRanks) {
  for (const int64_t prefix : {3, 11}) {
    for (const TinyLayout& layout : {TinyLayout{1, 1, 1, 0, false, 1, "", "", 4, "adaptive"},
                                     TinyLayout{2, 1, 1, 1, true, 1, "", "", 2, "adaptive"},
                                     TinyLayout{1, 2, 1, 0, false, 1, "", "", 4, "hybrid_adaptive"}}) {
      SCOPED_TRACE(core::cat(layout.name(), ", a prefix of ", prefix));
      const test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.training.sparse_mode = 5;
      config.training.prefix_length = prefix;
      test::expect_plan_equals_run(config, layout.ranks());
    }
  }
}

// The same of grids, for which ranks also have other positions.
TEST(PlanOfParts, EqualsTheRunOfGridsAndAdaptiveRanks) {
  for (const bool is_general : {false, true}) {
    for (const TinyLayout& layout : {TinyLayout{1, 1, 1, 0, false, 1, "", "", 4, "adaptive"},
                                     TinyLayout{2, 1, 1, 1, true, 1, "", "", 2, "adaptive"},
                                     TinyLayout{1, 2, 1, 0, false, 1, "", "", 4, "hybrid_adaptive"}}) {
      SCOPED_TRACE(core::cat(layout.name(), is_general ? ", general" : ""));
      const test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.training.attention_mask_grid =
          core::cat(MS_TEST_DATA, "/train/mask_grids/", is_general ? "general_16.txt" : "causal_8.txt");
      config.training.attention_mask_type = is_general ? "general" : "causal";
      test::expect_plan_equals_run(config, layout.ranks());
    }
  }
}

TEST(PlanOfParts, EqualsTheRunForEachOptimizerAndItsBuckets) {
  const TinyLayout layouts[] = {{1, 1, 2, false, false, 1},
                                {1, 1, 4, true, false, 1},
                                {2, 2, 2, true, true, 2},
                                {2, 1, 2, false, true, 1},
                                {1, 2, 2, true, false, 1, "zb-h1"},
                                {2, 2, 2, true, true, 1, "zb-v"},
                                {1, 1, 4, 2, false, 1},
                                {2, 2, 2, 2, true, 2},
                                {1, 2, 2, 2, false, 1, "zb-h1"},
                                {1, 1, 4, 3, false, 1},
                                {2, 2, 2, 3, true, 2}};
  const test::PlanMode changes[] = {
      {"buckets of one parameter",
       [](train::TrainerConfig& config) {
         config.parallel.overlap_grad_reduce = true;
         config.parallel.ddp_bucket_size = 1;
       }},
      {"three buckets, gathered too",
       [](train::TrainerConfig& config) {
         config.parallel.overlap_grad_reduce = true;
         config.parallel.overlap_param_gather = config.parallel.use_distributed_optimizer;
         config.parallel.ddp_num_buckets = 3;
         config.model.untie_embeddings_and_output_weights = false;
       }},
      {"reduced in bf16",
       [](train::TrainerConfig& config) {
         config.training.bf16 = config.parallel.grad_reduce_in_bf16 = true;
         config.parallel.overlap_grad_reduce = true;
         config.parallel.ddp_num_buckets = 4;
       }},
      {"state on the tier",
       [](train::TrainerConfig& config) {
         config.training.bf16 = true;
         config.optimizer.swap_optimizer = true;
       }},
      {"state on the tier in three chunks, with activations",
       [](train::TrainerConfig& config) {
         config.optimizer.swap_optimizer = true;
         config.optimizer.swap_optimizer_times = 3;
         test::swap_all(config);
       }},
      {"SGD",
       [](train::TrainerConfig& config) {
         config.optimizer.optimizer = "sgd";
         config.training.bf16 = true;
       }},
      {"SGD without momentum",
       [](train::TrainerConfig& config) {
         config.optimizer.optimizer = "sgd";
         config.optimizer.sgd_momentum = 0;
       }},
      {"frozen layers",
       [](train::TrainerConfig& config) { config.optimizer.freeze_parameters = "^emb|layers.[0-4].m"; }},
      {"frozen parts",
       [](train::TrainerConfig& config) {
         config.optimizer.freeze_parameters = "linear_qkv|linear_fc1|output_layer";
         config.training.bf16 = true;
         config.parallel.overlap_grad_reduce = true;
         config.parallel.ddp_num_buckets = 3;
       }},
      {"a frozen tied embedding",
       [](train::TrainerConfig& config) {
         config.optimizer.freeze_parameters = "embedding";
         config.model.untie_embeddings_and_output_weights = false;
       }},
  };
  test::expect_plans_equal_runs(layouts, changes, test::PlanTable::kDiagonals,
                                [](train::TrainerConfig& config) { config.model.num_layers = 8; });
}

TEST(PlanOfParts, EqualsTheRunOfSeveralOptimizerInstances) {
  const test::PlanMode changes[] = {
      {"plain", [](train::TrainerConfig&) {}},
      {"tied embeddings, several buckets",
       [](train::TrainerConfig& config) {
         config.model.untie_embeddings_and_output_weights = false;
         config.parallel.overlap_grad_reduce = config.parallel.overlap_param_gather = true;
         config.parallel.ddp_bucket_size = 1;
       }},
      {"reduced in bf16, norms of parameters",
       [](train::TrainerConfig& config) {
         config.training.bf16 = config.parallel.grad_reduce_in_bf16 = true;
         config.logger.log_params_norm = true;
       }},
      {"four instances", [](train::TrainerConfig& config) { config.parallel.num_distributed_optimizer_instances = 4; }},
      {"their state divided, tied embeddings",
       [](train::TrainerConfig& config) {
         config.model.untie_embeddings_and_output_weights = false;
         if (config.parallel.data_parallel_sharding_strategy == "optim_grads_params")
           config.parallel.outer_dp_sharding_strategy = "optim";
         config.training.bf16 = true;
         config.logger.log_num_zeros_in_grad = config.logger.log_params_norm = true;
       }},
      {"small parameters whole",
       [](train::TrainerConfig& config) { config.parallel.parallel_optimizer_threshold = 1; }},
      {"small parameters whole, a tied embedding, buckets",
       [](train::TrainerConfig& config) {
         config.parallel.parallel_optimizer_threshold = 12;
         config.model.untie_embeddings_and_output_weights = false;
         config.parallel.overlap_grad_reduce = config.parallel.overlap_param_gather = true;
         config.parallel.ddp_bucket_size = 1;
       }},
  };
  const TinyLayout layouts[] = {{1, 1, 8, 1},
                                {1, 1, 8, 2},
                                {1, 1, 8, 3},
                                {1, 2, 8, 1},
                                {2, 1, 8, 3, true},
                                {1, 2, 8, 3},
                                {2, 1, 8, 2, true},
                                {.dp = 4, .zero = 1, .cp = 2, .context = "a2a"},
                                {.dp = 4, .zero = 3, .cp = 2, .context = "p2p"}};
  test::expect_plans_equal_runs(layouts, changes, test::PlanTable::kDiagonals, [](train::TrainerConfig& config) {
    config.parallel.num_distributed_optimizer_instances = 2;
  });
}

// Each tensor-parallel rank has a half, or a quarter, of a query group.
TEST(PlanOfParts, EqualsTheRunOfSharedQueryGroups) {
  const TinyLayout layouts[] = {{4, 1, 1},
                                {4, 1, 1, 0, true},
                                {4, 2, 1, 0, true, 1, "zb-h1"},
                                {4, 2, 1, 0, false, 1, "dualpipev"},
                                {4, 2, 1, 0, true, 1, "dualpipev delayed"},
                                {4, 1, 1, 0, true, 1, "", "coc2"}};
  for (const TinyLayout& layout : layouts) {
    for (const int64_t groups : {1, 2}) {
      for (const test::PlanMode& mode : test::kPlanModes) {
        if (!test::plan_is_due((&layout - layouts) + (&mode - test::kPlanModes) + groups)) continue;
        SCOPED_TRACE(core::cat(mode.name, ", ", layout.name(), ", groups ", groups));
        const test::TemporaryFolder folder;
        train::TrainerConfig config = test::tiny_config(folder.path(), layout);
        config.model.num_layers = 8;
        config.training.global_batch_size = 8;
        config.model.num_query_groups = groups;
        mode.set(config);
        test::expect_plan_equals_run(config, layout.ranks());
      }
    }
  }
}

}  // namespace
}  // namespace ms
