// The plan of a step against what the ranks of a run count: operations and bytes by group, FLOPs, and memory that
// lasts, exactly.
#include "train/plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/layout/formulas/communication.h"
#include "core/layout/process_group_table.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::TinyLayout;

std::vector<layout::Traffic> counted(const train::GroupCounters& counters) {
  std::vector<layout::Traffic> traffic;
  for (size_t group = 0; group < counters.size(); ++group) {
    for (size_t op = 0; op < counters[group].size(); ++op) {
      const core::CommCounter& counter = counters[group][op];
      if (counter.calls == 0) continue;
      traffic.push_back({static_cast<layout::Group>(group), static_cast<core::CommOp>(op), counter.calls,
                         counter.payload_bytes, counter.ring_bytes});
    }
  }
  return traffic;
}

std::string listed(const std::vector<layout::Traffic>& traffic) {
  std::string text;
  for (const layout::Traffic& t : traffic) {
    text += core::cat(layout::group_name(t.group), ' ', core::comm_op_name(t.op), ": ", t.calls, " calls, ",
                      t.payload_bytes, " bytes, ", t.ring_bytes, " sent; ");
  }
  return text;
}

void expect_within_a_tenth(int64_t planned, int64_t seen, const char* what) {
  EXPECT_NEAR(static_cast<double>(planned), static_cast<double>(seen), 0.1 * static_cast<double>(seen)) << what;
}

// exact: activations, too, are what the plan says, to the byte.
void expect_plan_equals_run(train::TrainerConfig config, int ranks, bool exact = false) {
  config.training.train_iters = 2;
  config.parallel.shared_memory = false;  // the plan has the buffers of messages
  const std::vector<train::RunSummary> summaries = test::run_all_on_threads(config, ranks);
  config.model.vocab_size = 257;
  config.resolve_and_validate(ranks);
  const train::RunPlan plan(config.training_step(ranks), {}, {});
  for (int rank = 0; rank < ranks; ++rank) {
    SCOPED_TRACE(core::cat("rank ", rank));
    const train::RunSummary& summary = summaries[static_cast<size_t>(rank)];
    const train::StepMetrics& step = summary.steps.back();
    const train::StagePlan& planned = plan.stages()[static_cast<size_t>(config.grid(ranks).coordinates(rank).pp)];
    EXPECT_EQ(listed(planned.traffic), listed(counted(summary.communication)));
    EXPECT_EQ(planned.executed_flops, step.executed_flops);
    const auto peak = [&](core::MemoryTag tag) { return step.peak_bytes[static_cast<size_t>(tag)]; };
    EXPECT_EQ(planned.memory.param, peak(core::MemoryTag::kParam));
    EXPECT_EQ(planned.memory.grad, peak(core::MemoryTag::kGrad));
    EXPECT_EQ(planned.memory.master, peak(core::MemoryTag::kMaster));
    EXPECT_EQ(planned.memory.optim, peak(core::MemoryTag::kOptim));
    if (exact) {
      EXPECT_EQ(planned.memory.act, peak(core::MemoryTag::kAct)) << "activations";
    } else if (config.optimizer.freeze_parameters.empty()) {
      expect_within_a_tenth(planned.memory.act, peak(core::MemoryTag::kAct), "activations");
    } else {
      EXPECT_LE(static_cast<double>(peak(core::MemoryTag::kAct)), 1.1 * static_cast<double>(planned.memory.act))
          << "operands of what does not train are not kept";
    }
    EXPECT_EQ(planned.memory.tier, step.tier ? step.tier->peak_bytes : 0);
    EXPECT_EQ(planned.memory.swapped, step.tier ? step.tier->written_bytes : 0);
    // How many buckets, or parts of a product, are under way at once is a matter of time.
    if (config.parallel.overlap_grad_reduce || config.training_step(ranks).product_parts() > 1) {
      EXPECT_LE(peak(core::MemoryTag::kComm), planned.memory.comm);
    } else {
      expect_within_a_tenth(planned.memory.comm, peak(core::MemoryTag::kComm), "communication buffers");
    }
  }
}

void swap_all(train::TrainerConfig& config) {
  config.training.swap_attention = true;
  config.training.swap_modules = "input_norm,self_attention,post_attention_norm";
  config.training.swap_min_tensor_kib = 0;
}

void latent_attention(train::TrainerConfig& config) {
  core::TransformerConfig& model = config.model;
  model.multi_latent_attention = model.qk_layernorm = true;
  model.q_lora_rank = 24;
  model.kv_lora_rank = 20;
  model.qk_head_dim = 12;
  model.qk_pos_emb_head_dim = 8;
  model.v_head_dim = 10;
}

struct Mode {
  const char* name;
  void (*set)(train::TrainerConfig&);
};
const Mode kModes[] = {
    {"plain", [](train::TrainerConfig&) {}},
    {"block",
     [](train::TrainerConfig& config) {
       config.training.recompute_granularity = "full";
       config.training.recompute_method = "block";
       config.training.recompute_num_layers = 1;
     }},
    {"uniform_3",
     [](train::TrainerConfig& config) {
       config.training.recompute_granularity = "full";
       config.training.recompute_method = "uniform";
       config.training.recompute_num_layers = 3;
     }},
    {"mlp",
     [](train::TrainerConfig& config) {
       config.training.recompute_granularity = "selective";
       config.training.recompute_modules = {"mlp"};
     }},
    {"norm_and_activation",
     [](train::TrainerConfig& config) {
       config.training.recompute_norm = config.training.recompute_activation_function = true;
     }},
    {"swap_all_mlp_of_one_layer",
     [](train::TrainerConfig& config) {
       swap_all(config);
       config.training.recompute_num_layers = 1;
     }},
};

struct Row {
  TinyLayout layout;
  size_t mode;
};

class Plan : public testing::TestWithParam<Row> {};

TEST_P(Plan, EqualsTheRunOnEveryRank) {
  const TinyLayout& layout = GetParam().layout;
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.num_layers = 8;
  config.training.global_batch_size = 8;
  kModes[GetParam().mode].set(config);
  expect_plan_equals_run(config, layout.ranks());
}

// Every covering layout of tests/train/layouts_test.cpp, and every mode with the layouts that it can concern.
std::vector<Row> rows() {
  const TinyLayout layouts[] = {
      // tp, pp, dp, zero, sp, vpp
      {1, 1, 1, false, false, 1},
      {1, 1, 2, false, false, 1},
      {1, 1, 2, true, false, 1},
      {1, 1, 4, true, false, 1},
      {1, 2, 1, false, false, 1},
      {1, 2, 1, false, false, 2},
      {1, 2, 1, true, false, 2},
      {1, 2, 2, true, false, 1},
      {1, 2, 2, false, false, 2},
      {1, 4, 1, false, false, 1},
      {1, 4, 1, false, false, 2},
      {2, 1, 1, false, false, 1},
      {2, 1, 1, false, true, 1},
      {2, 1, 2, false, false, 1},
      {2, 1, 2, true, true, 1},
      {2, 2, 1, false, true, 1},
      {2, 2, 1, false, true, 2},
      {2, 2, 1, true, false, 2},
      {2, 2, 2, true, true, 1},
      {2, 2, 2, false, true, 2},
      {4, 1, 1, false, false, 1},
      {4, 1, 1, true, true, 1},
      {4, 1, 2, false, true, 1},
      {4, 2, 1, false, true, 1},
      {4, 2, 1, true, false, 2},
      {1, 1, 2, 2, false, 1},
      {1, 1, 4, 2, false, 1},
      {1, 2, 2, 2, false, 2},
      {2, 1, 2, 2, false, 1},
      {2, 2, 2, 2, true, 1},
      {1, 2, 2, 2, false, 1, "zb-h1"},
      {2, 2, 2, 2, true, 1, "zb-v"},
      {1, 2, 2, 2, false, 2, "nanopipe"},
      {1, 1, 2, 3, false, 1},
      {1, 1, 4, 3, false, 1},
      {1, 2, 2, 3, false, 2},
      {2, 2, 2, 3, true, 1},
      {1, 2, 2, 3, false, 1, "zb-h1"},
      {2, 2, 2, 3, true, 1, "zb-v"},
      {1, 2, 1, false, false, 1, "zb-h1"},
      {2, 2, 1, false, true, 1, "zb-h1"},
      {1, 4, 1, false, false, 1, "zb-h1"},
      {1, 2, 1, false, false, 1, "zb-v"},
      {2, 2, 2, true, true, 1, "zb-v"},
      {1, 4, 1, false, false, 1, "zb-v"},
      {1, 2, 1, false, false, 1, "dualpipev"},
      {2, 2, 1, false, false, 1, "dualpipev"},
      {2, 2, 1, false, true, 1, "dualpipev detached"},
      {2, 2, 1, false, true, 1, "dualpipev delayed"},
      {1, 4, 1, false, false, 1, "dualpipev detached"},
      {1, 4, 1, false, false, 2, "nanopipe"},
      {2, 2, 1, false, true, 2, "nanopipe"},
      {2, 1, 1, false, false, 1, "", "tp"},
      {2, 1, 2, true, true, 1, "", "tp"},
      {4, 1, 1, false, false, 1, "", "coc2"},
      {2, 1, 1, false, true, 1, "", "coc4"},
      {2, 2, 1, false, true, 1, "zb-h1", "coc2"},
      {2, 2, 1, false, false, 1, "dualpipev", "tp"},
  };
  std::vector<Row> table;
  for (const TinyLayout& layout : layouts) {
    for (size_t mode = 0; mode < std::size(kModes); ++mode) table.push_back({layout, mode});
  }
  return table;
}

INSTANTIATE_TEST_SUITE_P(Table, Plan, testing::ValuesIn(rows()), [](const auto& test) {
  return test.param.layout.name() + "_" + kModes[test.param.mode].name;
});

TEST(Plan, EqualsTheRunOfSeveralOptimizerInstances) {
  const Mode changes[] = {
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
  };
  for (const TinyLayout& layout : {TinyLayout{1, 1, 8, 1}, TinyLayout{1, 1, 8, 2}, TinyLayout{1, 1, 8, 3},
                                   TinyLayout{1, 2, 8, 1}, TinyLayout{2, 1, 8, 3, true}}) {
    for (const Mode& change : changes) {
      SCOPED_TRACE(core::cat(change.name, ", ", layout.name()));
      const test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.training.global_batch_size = 16;
      config.parallel.num_distributed_optimizer_instances = 2;
      change.set(config);
      expect_plan_equals_run(config, layout.ranks());
    }
  }
}

// Each tensor-parallel rank has a half, or a quarter, of a query group.
TEST(Plan, EqualsTheRunOfSharedQueryGroups) {
  for (const TinyLayout& layout :
       {TinyLayout{4, 1, 1}, TinyLayout{4, 1, 1, 0, true}, TinyLayout{4, 2, 1, 0, true, 1, "zb-h1"},
        TinyLayout{4, 2, 1, 0, false, 1, "dualpipev"}, TinyLayout{4, 2, 1, 0, true, 1, "dualpipev delayed"},
        TinyLayout{4, 1, 1, 0, true, 1, "", "coc2"}}) {
    for (const int64_t groups : {1, 2}) {
      for (const Mode& mode : kModes) {
        SCOPED_TRACE(core::cat(mode.name, ", ", layout.name(), ", groups ", groups));
        const test::TemporaryFolder folder;
        train::TrainerConfig config = test::tiny_config(folder.path(), layout);
        config.model.num_layers = 8;
        config.training.global_batch_size = 8;
        config.model.num_query_groups = groups;
        mode.set(config);
        expect_plan_equals_run(config, layout.ranks());
      }
    }
  }
}

TEST(Plan, EqualsTheRunForEachPartThatCommunicates) {
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
  const Mode changes[] = {
      {"tied embeddings",
       [](train::TrainerConfig& config) { config.model.untie_embeddings_and_output_weights = false; }},
      {"norms of heads", [](train::TrainerConfig& config) { config.model.qk_layernorm = true; }},
      {"one query group, norms of heads",
       [](train::TrainerConfig& config) {
         config.model.num_query_groups = 1;
         config.model.qk_layernorm = true;
       }},
      {"attention swapped",
       [](train::TrainerConfig& config) {
         config.training.swap_attention = true;
         config.training.swap_min_tensor_kib = 0;
       }},
      {"norms of heads, swapped from 2 KiB on",
       [](train::TrainerConfig& config) {
         config.model.qk_layernorm = true;
         swap_all(config);
         config.training.swap_min_tensor_kib = 2;
       }},
      {"norms behind attention and MLP, recomputed",
       [](train::TrainerConfig& config) {
         config.model.post_norm = true;
         kModes[2].set(config);
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
      {"loss in chunks", [](train::TrainerConfig& config) { config.training.loss_chunk_size = 5; }},
      {"zeros and norms counted",
       [](train::TrainerConfig& config) {
         config.logger.log_num_zeros_in_grad = config.logger.log_params_norm = true;
       }},
      {"TP-PP-DP order", [](train::TrainerConfig& config) { config.parallel.use_tp_pp_dp_mapping = true; }},
      {"micro-batches of 2", [](train::TrainerConfig& config) { config.training.micro_batch_size = 2; }},
  };
  for (const TinyLayout& layout : layouts) {
    for (const Mode& change : changes) {
      SCOPED_TRACE(core::cat(layout.name(), ", ", change.name));
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.training.global_batch_size = 16;
      change.set(config);
      if (layout.zero > 1 && config.training.loss_chunk_size > 0) continue;  // exclude each other
      expect_plan_equals_run(config, layout.ranks());
    }
  }
}

// In fp32 activations, too, are what the plan says, to the byte.
TEST(Plan, EqualsTheRunOfLatentAttention) {
  const TinyLayout layouts[] = {{1, 1, 1, false, false, 1},
                                {2, 1, 1, false, false, 1},
                                {2, 1, 2, true, true, 1},
                                {2, 2, 1, false, true, 2},
                                {1, 2, 2, 2, false, 1},
                                {2, 1, 2, 3, true, 1},
                                {2, 2, 1, false, true, 1, "zb-v"},
                                {2, 2, 1, false, true, 1, "dualpipev"}};
  const Mode changes[] = {
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
         kModes[1].set(config);
         config.training.recompute_mla_up_proj = true;
       }},
      {"bf16", [](train::TrainerConfig& config) { config.training.bf16 = true; }},
      {"swapped", swap_all},
      {"frozen parts",
       [](train::TrainerConfig& config) { config.optimizer.freeze_parameters = "linear_q_up|kv_up_proj.w|kv_down"; }},
      {"a norm behind it",
       [](train::TrainerConfig& config) {
         config.model.normalization = "LayerNorm";
         config.model.post_norm = true;
       }},
  };
  for (const TinyLayout& layout : layouts) {
    for (const Mode& change : changes) {
      SCOPED_TRACE(core::cat(layout.name(), ", ", change.name));
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.model.num_layers = 8;
      config.training.global_batch_size = 16;
      latent_attention(config);
      change.set(config);
      const bool exact = config.optimizer.freeze_parameters.empty() && !config.training.bf16;
      expect_plan_equals_run(config, layout.ranks(), exact);
    }
  }
}

TEST(Plan, EqualsTheRunForEachOptimizerAndItsBuckets) {
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
  const Mode changes[] = {
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
  for (const TinyLayout& layout : layouts) {
    for (const Mode& change : changes) {
      SCOPED_TRACE(core::cat(layout.name(), ", ", change.name));
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.model.num_layers = 8;
      config.training.global_batch_size = 16;
      change.set(config);
      expect_plan_equals_run(config, layout.ranks());
    }
  }
}

TEST(Plan, EqualsTheRunWithANumberOfRecomputedLayersForEachStage) {
  for (const TinyLayout& layout : {TinyLayout{2, 2, 1, false, true}, TinyLayout{1, 4, 1}}) {
    for (const int64_t type : {2, 0}) {
      SCOPED_TRACE(core::cat(layout.name(), ", type ", type));
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.model.num_layers = 8;
      config.training.global_batch_size = 16;
      config.parallel.num_layer_list = layout.pp == 2 ? std::vector<int64_t>{5, 3} : std::vector<int64_t>{3, 1, 2, 2};
      config.training.recompute_module_list = layout.pp == 2 ? std::vector<int64_t>{3, 0}  //
                                                             : std::vector<int64_t>{2, 1, 0, 1};
      config.training.recompute_type = type;
      expect_plan_equals_run(config, layout.ranks());
      config.training.recompute_granularity = "selective";
      config.training.recompute_modules = {"mlp"};
      expect_plan_equals_run(config, layout.ranks());
    }
  }
}

TEST(Plan, EqualsTheRunWithOtherWaysThroughThePipeline) {
  const TinyLayout layouts[] = {
      {2, 2, 1, false, true, 2}, {1, 4, 1, false, false, 2}, {1, 2, 2, 2, false, 2}, {1, 2, 2, 3, false, 2}};
  const Mode changes[] = {
      {"deferred gradients of the output layer",
       [](train::TrainerConfig& config) { config.parallel.defer_embedding_wgrad_compute = true; }},
      {"of three micro-batches",
       [](train::TrainerConfig& config) {
         config.parallel.defer_embedding_wgrad_compute = true;
         config.parallel.wgrad_deferral_limit = 3;
       }},
      {"recomputation in the bubble", [](train::TrainerConfig& config) { config.training.recompute_in_bubble = true; }},
      {"recomputation in the bubble, norms and activations in the rest",
       [](train::TrainerConfig& config) {
         config.training.recompute_in_bubble = true;
         config.training.recompute_norm = config.training.recompute_activation_function = true;
       }},
      {"recomputation in the bubble, the rest swapped but for the MLPs of two layers",
       [](train::TrainerConfig& config) {
         config.training.recompute_in_bubble = true;
         swap_all(config);
         config.training.recompute_num_layers = 2;
       }},
      {"recomputation in the bubble, the rest swapped",
       [](train::TrainerConfig& config) {
         config.training.recompute_in_bubble = true;
         swap_all(config);
       }},
      {"a layer recomputed, the rest swapped",
       [](train::TrainerConfig& config) {
         kModes[1].set(config);
         swap_all(config);
       }},
      {"recomputation in advance",
       [](train::TrainerConfig& config) {
         kModes[1].set(config);
         config.training.recompute_in_advance = true;
       }},
      {"recomputed layers counted by stage",
       [](train::TrainerConfig& config) {
         config.training.recompute_granularity = "full";
         config.training.recompute_method = "block";
         config.training.recompute_num_layers = 1;
         config.training.enable_recompute_layers_per_pp_rank = true;
         config.training.recompute_norm = true;
         config.training.recompute_norm_num_layers = 1;
       }},
      {"groups of micro-batches",
       [](train::TrainerConfig& config) {
         config.parallel.microbatch_group_size_per_virtual_pipeline_stage =
             config.parallel.pipeline_model_parallel_size + 2;
       }},
      {"no-op layers",
       [](train::TrainerConfig& config) {
         config.model.num_layers = 16;
         config.parallel.noop_layers = {0, 5, 6, 7, 15};
       }},
  };
  for (const TinyLayout& layout : layouts) {
    for (const Mode& change : changes) {
      SCOPED_TRACE(core::cat(layout.name(), ", ", change.name));
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.model.num_layers = 8;
      config.training.global_batch_size = 16;
      change.set(config);
      expect_plan_equals_run(config, layout.ranks());
    }
  }
}

TEST(Plan, EqualsTheRunWhoseOperandsOfWaitingGradientsLeaveMemory) {
  const TinyLayout layouts[] = {{2, 2, 1, false, true, 2, "nanopipe"},
                                {1, 4, 1, false, false, 2, "nanopipe"},
                                {2, 2, 1, false, false, 2, "nanopipe"}};
  const Mode changes[] = {
      {"operands", [](train::TrainerConfig& config) { config.training.swap_min_tensor_kib = 0; }},
      {"operands of 2 KiB and more, norms behind attention and MLP",
       [](train::TrainerConfig& config) {
         config.model.post_norm = true;
         config.training.swap_min_tensor_kib = 2;
       }},
      {"activations too", swap_all},
      {"a layer recomputed",
       [](train::TrainerConfig& config) {
         kModes[1].set(config);
         config.training.swap_min_tensor_kib = 0;
       }},
  };
  for (const TinyLayout& layout : layouts) {
    for (const Mode& change : changes) {
      SCOPED_TRACE(core::cat(layout.name(), ", ", change.name));
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.model.num_layers = 16;
      config.training.global_batch_size = 8;
      config.parallel.use_nanopipe_swap = true;
      change.set(config);
      expect_plan_equals_run(config, layout.ranks());
    }
  }
}

TEST(Plan, EqualsTheRunOfLayersWithExperts) {
  const Mode kinds[] = {
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
  for (const Mode& kind : kinds) {
    for (const TinyLayout& layout :
         {TinyLayout{}, TinyLayout{1, 2, 1}, {1, 2, 2, true}, {1, 2, 1, false, false, 2}, {1, 2, 2, 2}, {1, 2, 2, 3}}) {
      for (const Mode& mode : kModes) {
        if (std::string_view(mode.name).starts_with("swap")) continue;
        SCOPED_TRACE(core::cat(kind.name, ", ", layout.name(), ", ", mode.name));
        const test::TemporaryFolder folder;
        train::TrainerConfig config = test::tiny_config(folder.path(), layout);
        config.model.num_experts = 5;
        config.model.moe_ffn_hidden_size = 24;
        config.model.moe_router_topk = 3;
        config.training.global_batch_size = 8;
        kind.set(config);
        mode.set(config);
        expect_plan_equals_run(config, layout.ranks());
      }
    }
  }
}

void overlap_experts(train::TrainerConfig& config) {
  const bool gathers = config.parallel.moe_token_dispatcher_type == "allgather";
  (gathers ? config.parallel.moe_allgather_overlap_comm : config.parallel.moe_alltoall_overlap_comm) = true;
}

// Experts on several ranks, all with the same number of tokens.
TEST(Plan, EqualsTheRunOfExpertsOnSeveralRanks) {
  struct ExpertRow {
    TinyLayout layout;
    int ep, etp;
    const char* dispatcher;
  };
  const ExpertRow rows[] = {{{1, 1, 2}, 2, 1, "alltoall"},
                            {{1, 1, 4, true}, 2, 1, "allgather"},
                            {{1, 2, 2, true}, 2, 1, "alltoall"},
                            {{2, 1, 1, false, true}, 1, 2, "alltoall"},
                            {{2, 1, 1, true, true}, 1, 1, "alltoall"},
                            {{2, 1, 2, true, true}, 2, 2, "alltoall"},
                            {{2, 1, 2, true, true}, 2, 2, "allgather"},
                            {{2, 1, 2, false, true}, 4, 1, "alltoall"},
                            {{2, 2, 2, true, true, 2}, 2, 1, "allgather"}};
  const Mode kinds[] = {
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
    for (const Mode& kind : kinds) {
      for (const size_t mode : {size_t{0}, size_t{2}, size_t{4}}) {
        const bool is_long = std::string_view(kind.name).find("overlapped") != std::string_view::npos;
        if (is_long && (mode == 2 || row.layout.pp > 1)) continue;
        SCOPED_TRACE(core::cat(row.layout.name(), ", EP ", row.ep, ", ETP ", row.etp, ", ", row.dispatcher, ", ",
                               kind.name, ", ", kModes[mode].name));
        const test::TemporaryFolder folder;
        train::TrainerConfig config = test::tiny_config(folder.path(), row.layout);
        config.model.num_experts = 8;
        config.model.moe_ffn_hidden_size = 24;
        config.model.moe_router_topk = 2;
        config.training.fix_router = true;
        config.parallel.expert_model_parallel_size = row.ep;
        config.parallel.expert_tensor_parallel_size = row.etp;
        config.parallel.moe_token_dispatcher_type = row.dispatcher;
        config.training.global_batch_size = 8;
        kind.set(config);
        kModes[mode].set(config);
        expect_plan_equals_run(config, row.layout.ranks());
      }
    }
  }
}

TEST(Plan, EqualsTheRunOfRecomputedExperts) {
  struct ExpertRow {
    TinyLayout layout;
    int ep, etp;
    const char* dispatcher;
  };
  const ExpertRow rows[] = {{{}, 1, 1, "alltoall"},
                            {{1, 2, 2, true}, 2, 1, "alltoall"},
                            {{2, 1, 1, true, true}, 2, 1, "alltoall"},
                            {{2, 1, 2, true, true}, 2, 2, "allgather"}};
  const Mode kinds[] = {
      {"moe", [](train::TrainerConfig& config) { config.training.moe_layer_recompute = true; }},
      {"adaptive, an even load",
       [](train::TrainerConfig& config) { config.training.moe_adaptive_recompute_activation = true; }},
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
      {"shared_experts, moe_act",
       [](train::TrainerConfig& config) {
         config.training.recompute_granularity = "selective";
         config.training.recompute_modules = {"shared_experts", "moe_act"};
         config.model.moe_shared_expert_gate = true;
       }},
  };
  for (const ExpertRow& row : rows) {
    for (const Mode& kind : kinds) {
      SCOPED_TRACE(core::cat(row.layout.name(), ", EP ", row.ep, ", ", row.dispatcher, ", ", kind.name));
      const test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), row.layout);
      config.model.num_experts = 8;
      config.model.moe_ffn_hidden_size = 24;
      config.model.moe_router_topk = 2;
      config.model.moe_shared_expert_intermediate_size = 40;
      config.training.fix_router = true;
      config.parallel.expert_model_parallel_size = row.ep;
      config.parallel.expert_tensor_parallel_size = row.etp;
      config.parallel.moe_token_dispatcher_type = row.dispatcher;
      config.training.global_batch_size = 8;
      kind.set(config);
      expect_plan_equals_run(config, row.layout.ranks());
    }
  }
}

TEST(Plan, RefusesMoreActionsThanCanBeListed) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), {1, 2, 1});
  config.model.vocab_size = 257;
  config.training.train_iters = 1;
  config.training.global_batch_size = int64_t{1} << 30;
  config.resolve_and_validate(2);
  try {
    const train::RunPlan plan(config.training_step(2), {}, {});
    FAIL() << "it has been listed";
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find("--global-batch-size"), std::string::npos) << e.what();
  }
}

TEST(Plan, EqualsTheRunWithUnevenStages) {
  const struct {
    TinyLayout layout;
    const char* text;
  } rows[] = {{{1, 2, 1}, "Et|tttL"},
              {{2, 2, 1, false, true}, "Et|t|t|tL"},
              {{1, 4, 1}, "E|tt|tt|L"},
              {{2, 2, 2, true, true}, "E|ttt|t|L"}};
  for (const auto& row : rows) {
    for (const Mode& mode : kModes) {
      const std::string text = row.text;
      SCOPED_TRACE(core::cat(row.layout.name(), ", ", text, ", ", mode.name));
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), row.layout);
      config.training.global_batch_size = 8;
      config.parallel.pipeline_model_parallel_layout = text;
      mode.set(config);
      expect_plan_equals_run(config, row.layout.ranks());
    }
  }
}

train::RunPlan plan_of(const TinyLayout& layout, const std::function<void(train::TrainerConfig&)>& change) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.train_iters = 2;
  config.model.num_layers = 8;
  config.model.vocab_size = 257;
  change(config);
  config.resolve_and_validate(layout.ranks());
  return train::RunPlan(config.training_step(layout.ranks()), {}, {});
}

TEST(Plan, UnevenStagesTakeAsLongAsTheirFlops) {
  const auto planned = [](std::vector<int64_t> list) {
    return plan_of({1, 2, 1}, [&](train::TrainerConfig& config) { config.parallel.num_layer_list = list; });
  };
  const train::RunPlan even = planned({}), uneven = planned({7, 1});
  const nlohmann::json units = uneven.json()["schedule"]["forward_units"];
  EXPECT_EQ(even.json()["schedule"]["forward_units"], (nlohmann::json{1.0, 1.0}));
  EXPECT_NEAR(units[0].get<double>() + units[1].get<double>(), 2, 1e-9);
  const auto flops = [&](size_t stage) { return static_cast<double>(uneven.stages()[stage].executed_flops); };
  EXPECT_NEAR(units[0].get<double>() / units[1].get<double>(), flops(0) / flops(1), 1e-9);
  EXPECT_GT(uneven.json()["schedule"]["makespan"], even.json()["schedule"]["makespan"]);
  EXPECT_NE(even.text().find("all stages are taken as equal"), std::string::npos);
  EXPECT_NE(uneven.text().find("as long as the FLOPs of their layers"), std::string::npos);
}

// Every label of the drawing is a whole one, and none touches the next.
TEST(Plan, DrawingHasWholeLabels) {
  const train::RunPlan many =
      plan_of({1, 2, 1}, [](train::TrainerConfig& config) { config.training.global_batch_size = 16; });
  EXPECT_NE(many.text().find("F10 "), std::string::npos) << many.text();
  const train::RunPlan ahead = plan_of({1, 2, 1, false, false, 2}, [](train::TrainerConfig& config) {
    config.training.global_batch_size = 12;
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "block";
    config.training.recompute_num_layers = 1;
    config.training.recompute_in_advance = true;
  });
  std::istringstream lines(ahead.text().substr(ahead.text().find("schedule, one line")));
  const std::regex row("  +\\d+  ((([FBR]\\d+\\.\\d|[FBR]) +)|\\.)* *idle \\d+ %");
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" idle ") == std::string::npos || line.find(" units") != std::string::npos) continue;
    EXPECT_TRUE(std::regex_match(line, row)) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 2) << ahead.text();
}

// A backward that runs layers again takes longer; in advance it does not wait for the gradient first.
TEST(Plan, RecomputationTakesTimeInTheSchedule) {
  test::TemporaryFolder folder;
  const auto planned = [&](void (*change)(train::TrainerConfig&)) {
    train::TrainerConfig config = test::tiny_config(folder.path(), {1, 2, 1, false, false, 2});
    config.training.train_iters = 2;
    config.training.global_batch_size = 8;
    config.model.num_layers = 8;
    config.model.vocab_size = 257;
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "block";
    change(config);
    config.resolve_and_validate(2);
    return train::RunPlan(config.training_step(2), {}, {});
  };
  const auto makespan = [](const train::RunPlan& plan) { return plan.json()["schedule"]["makespan"].get<double>(); };
  const train::RunPlan plain = planned([](train::TrainerConfig& config) {
    config.training.recompute_granularity.clear();
    config.training.recompute_method.clear();
  });
  const train::RunPlan half = planned([](train::TrainerConfig& config) { config.training.recompute_num_layers = 1; });
  const train::RunPlan whole = planned([](train::TrainerConfig& config) { config.training.recompute_num_layers = 2; });
  const train::RunPlan ahead = planned([](train::TrainerConfig& config) {
    config.training.recompute_num_layers = 2;
    config.training.recompute_in_advance = true;
  });
  EXPECT_DOUBLE_EQ(makespan(plain), 51);  // 8 x 2 x 3 units, and (p - 1) (F + B) / v
  EXPECT_DOUBLE_EQ(makespan(half), 51 * 3.5 / 3);
  EXPECT_DOUBLE_EQ(makespan(whole), 51 * 4.0 / 3);
  EXPECT_LT(makespan(ahead), makespan(whole));
  EXPECT_NE(ahead.text().find("Rm runs dropped layers again"), std::string::npos);
  EXPECT_EQ(whole.text().find("Rm runs"), std::string::npos);
}

// The plan has the receive buffers of messages. Replicas that share memory need none for gradients and weights, and
// compute the same bits, buckets on their way beside the backward included.
TEST(Plan, ReplicasThatShareMemoryTakeNoReceiveBuffers) {
  const auto run = [](bool shares, bool zero, bool overlaps) {
    test::TemporaryFolder folder;
    train::TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2, zero});
    config.training.train_iters = 3;
    config.model.hidden_size = 64;  // units of 64 KiB and more
    config.model.kv_channels = 64 / config.model.num_attention_heads;
    config.model.ffn_hidden_size = 256;
    config.parallel.shared_memory = shares;
    config.parallel.overlap_grad_reduce = overlaps;
    config.parallel.overlap_param_gather = overlaps && zero;
    if (overlaps) config.parallel.ddp_num_buckets = 3;
    return test::run_on_threads(config, 2);
  };
  for (const bool zero : {false, true}) {
    for (const bool overlaps : {false, true}) {
      SCOPED_TRACE(core::cat(zero ? "ZeRO-1" : "ZeRO-0", overlaps ? ", buckets" : ""));
      const train::RunSummary shared = run(true, zero, overlaps), sent = run(false, zero, overlaps);
      ASSERT_EQ(shared.steps.size(), sent.steps.size());
      for (size_t i = 0; i < sent.steps.size(); ++i) {
        EXPECT_EQ(shared.steps[i].loss, sent.steps[i].loss);
        EXPECT_EQ(shared.steps[i].grad_norm, sent.steps[i].grad_norm);
      }
      const auto comm_peak = [](const train::RunSummary& summary) {
        return summary.steps.back().peak_bytes[static_cast<size_t>(core::MemoryTag::kComm)];
      };
      EXPECT_LT(comm_peak(shared), 8 << 10);  // of the few numbers that ranks agree on
      EXPECT_GT(comm_peak(sent), 16 << 10);
    }
  }
}

}  // namespace
}  // namespace ms
