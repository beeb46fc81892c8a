// Runs with experts on several ranks against one rank, and checkpoints from one layout of experts to another.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::TinyLayout;

struct ExpertLayout {
  TinyLayout layout;
  int ep, etp;
  const char* dispatcher = "alltoall";
  int instances = 1;
  bool divides_state = false;  // over them
  std::string name() const {
    return core::cat(layout.name(), "_ep", ep, "_etp", etp, "_", dispatcher,
                     instances > 1 ? core::cat("_of", instances) : "", divides_state ? "_divided" : "");
  }
};

// tp, pp, dp, zero, sp, vpp; ep, etp, dispatcher
const std::vector<ExpertLayout> kCovering = {
    {{1, 1, 2}, 2, 1},
    {{1, 1, 2, true}, 2, 1, "allgather"},
    {{1, 1, 4, true}, 2, 1},
    {{1, 1, 4}, 2, 1, "allgather"},
    {{1, 1, 4}, 4, 1},
    {{1, 2, 2, true}, 2, 1},
    {{1, 2, 2, false, false, 2}, 2, 1},
    {{1, 2, 4, true}, 2, 1, "allgather"},
    {{1, 1, 8, true}, 4, 1},
    {{2, 1, 1, false, true}, 1, 2},
    {{2, 1, 1, false, true}, 1, 1},
    {{2, 1, 1, true, true}, 2, 1},
    {{2, 1, 2, true, true}, 2, 2, "alltoall_seq"},
    {{2, 1, 2, false, true}, 2, 2, "allgather"},
    {{2, 1, 2, true, true}, 4, 1},
    {{2, 1, 2, true, true}, 2, 1, "allgather"},
    {{2, 2, 2, true, true, 2}, 2, 1},
    {{4, 1, 2, true, true}, 2, 2},
    {{4, 1, 1, false, true}, 1, 2, "allgather"},
    {{1, 1, 4, 2}, 2, 1},
    {{1, 1, 4, 3}, 2, 1, "allgather"},
    {{1, 1, 4, 3}, 4, 1},
    {{2, 1, 2, 2, true}, 2, 2},
    {{2, 1, 2, 3, true}, 2, 1},
    {{1, 2, 4, 3}, 2, 1},
    {{1, 1, 8, 1}, 2, 1, "alltoall", 2},
    {{1, 1, 8, 2}, 4, 1, "alltoall", 2},
    {{2, 1, 4, 3, true}, 2, 1, "alltoall", 2},
    {{1, 1, 8, 3}, 2, 1, "allgather", 2, true},
    {{2, 1, 4, 3, true}, 2, 2, "alltoall", 2, true},
    // and ranks that share sequences
    {{1, 1, 1, 0, false, 1, "", "", 2, "a2a"}, 2, 1},
    {{1, 1, 1, 1, false, 1, "", "", 4, "p2p"}, 2, 1, "allgather"},
    {{1, 1, 1, 0, false, 1, "", "", 4, "a2a+p2p"}, 4, 1},
    {{1, 1, 2, 1, false, 1, "", "", 2, "all_gather"}, 4, 1},
    {{1, 1, 2, 3, false, 1, "", "", 2, "a2a"}, 2, 1},
    {{1, 2, 2, 2, false, 1, "", "", 2, "p2p"}, 2, 1},
    {{2, 1, 1, 1, true, 1, "", "", 2, "a2a"}, 2, 2},
    {{2, 1, 1, 3, true, 1, "", "", 2, "all_gather"}, 2, 1},
    {{2, 1, 2, 0, true, 1, "", "", 2, "p2p"}, 4, 2, "allgather"},
    // and that go to groups of experts, or to blocks of them
    {{2, 1, 1, false, true}, 1, 2, "groups"},
    {{2, 2, 2, true, true}, 2, 2, "groups"},
    {{1, 1, 4, 3}, 2, 1, "groups"},
    {{2, 1, 2, true, true}, 4, 1, "hierarchical"},
    {{2, 2, 2, 0, true}, 4, 1, "hierarchical"},
    {{2, 1, 1, 3, true, 1, "", "", 2, "p2p"}, 4, 1, "hierarchical"},
};

std::vector<ExpertLayout> every_layout() {
  std::vector<ExpertLayout> layouts;
  for (const int tp : {1, 2, 4}) {
    for (const int pp : {1, 2}) {
      for (const int dp : {1, 2, 4, 8}) {
        for (const int ep : {1, 2, 4}) {
          for (const int etp : {1, 2, 4}) {
            const bool fits = tp * pp * dp <= 8 && tp * dp % (ep * etp) == 0 && (ep > 1 || etp != tp || tp > 1);
            if (!fits || (tp == 1 && etp > 1)) continue;
            for (const int zero : {0, 1, 2, 3}) {
              for (const char* dispatcher : {"alltoall", "allgather"})
                layouts.push_back({{tp, pp, dp, zero, tp > 1}, ep, etp, dispatcher});
            }
          }
        }
      }
    }
  }
  // {TP 1, 2} x {DP 1, 2} x {CP 2, 4} x {EP 1, 2, 4} x {ETP 1, TP} x {ZeRO 0 to 3}
  for (const char* context : {"a2a", "all_gather", "p2p"}) {
    for (const int ranks : {2, 4, 8}) {
      for (const int tp : {1, 2}) {
        for (const int cp : {2, 4}) {
          for (const int ep : {1, 2, 4}) {
            if (ranks % (tp * cp) != 0) continue;
            for (const int etp : {1, 2}) {
              if (etp > tp || ranks % (ep * etp) != 0) continue;
              for (const int zero : {0, 1, 2, 3})
                layouts.push_back(
                    {{tp, 1, ranks / tp / cp, zero, tp > 1, 1, "", "", cp, context}, ep, etp, "alltoall"});
            }
          }
        }
      }
    }
  }
  return layouts;
}

void set_layout(train::TrainerConfig& config, const ExpertLayout& row) {
  config.parallel.expert_model_parallel_size = row.ep;
  config.parallel.expert_tensor_parallel_size = row.etp;
  test::set_dispatcher(config, row.dispatcher, row.ep, row.layout.tp);
  config.parallel.num_distributed_optimizer_instances = row.instances;
  config.parallel.outer_dp_sharding_strategy = row.divides_state ? "optim" : "no_shard";
}

train::TrainerConfig config_of(const test::TemporaryFolder& folder, const ExpertLayout& row) {
  train::TrainerConfig config = test::tiny_config(folder.path(), row.layout);
  set_layout(config, row);
  config.model.num_experts = 4;
  config.model.moe_router_topk = 2;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_layer_freq = "([1,0,1,1])";
  config.model.moe_shared_expert_intermediate_size = 16;
  config.model.init_method_std = 0.1;  // scores that rounding does not reorder
  config.training.moe_aux_loss_coeff = {0.02};
  config.training.moe_z_loss_coeff = 0.001;
  config.training.train_iters = 20;
  config.training.global_batch_size = 8;
  return config;
}

struct Outcome {
  train::RunSummary summary;
  std::map<std::string, std::vector<float>> weights, moments;
};

Outcome run(train::TrainerConfig config, const test::TemporaryFolder& folder, const ExpertLayout& row,
            const std::string& name) {
  config.checkpoint.save = folder / name;
  Outcome outcome{test::run_on_threads(config, row.layout.ranks()), {}, {}};
  outcome.weights = test::read_tensors(outcome.summary.checkpoint, core::TensorRole::kParam);
  outcome.moments = test::read_tensors(outcome.summary.checkpoint, core::TensorRole::kExpAvg);
  return outcome;
}

void expect_near(const Outcome& seen, const Outcome& want) {
  ASSERT_EQ(seen.summary.steps.size(), want.summary.steps.size());
  for (size_t i = 0; i < want.summary.steps.size(); ++i) {
    const auto &a = seen.summary.steps[i], &b = want.summary.steps[i];
    EXPECT_NEAR(a.loss, b.loss, 1e-5 * b.loss) << "step " << i + 1;
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-3 * b.grad_norm) << "step " << i + 1;
  }
  for (const auto& [layer, load] : want.summary.steps.front().experts) {
    const train::LayerLoad& own = seen.summary.steps.front().experts.at(layer);
    EXPECT_EQ(own.tokens, load.tokens) << "layer " << layer;
    EXPECT_NEAR(own.losses.aux, load.losses.aux, 1e-6 * load.losses.aux) << "layer " << layer;
    EXPECT_NEAR(own.losses.z, load.losses.z, 1e-6 * load.losses.z) << "layer " << layer;
  }
  EXPECT_LT(test::largest_distance(seen.weights, want.weights), 1e-4);
}

// After one step the first moments are the gradients, of the router and of each expert.
void expect_gradients_near(const Outcome& seen, const Outcome& want) {
  EXPECT_LT(test::largest_distance(seen.moments, want.moments), 1e-4);
  EXPECT_NEAR(seen.summary.steps[0].grad_norm, want.summary.steps[0].grad_norm, 1e-5 * want.summary.steps[0].grad_norm)
      << "each expert counts once";
}

TEST(ExpertParallel, EveryLayoutAgreesWithOneRank) {
  const test::TemporaryFolder folder;
  const ExpertLayout one_rank{{}, 1, 1};
  const auto with_steps = [&](const ExpertLayout& row, int64_t steps, const std::string& name) {
    train::TrainerConfig config = config_of(folder, row);
    config.training.train_iters = steps;
    return run(config, folder, row, name);
  };
  constexpr int64_t kSteps = 20;
  const Outcome one = with_steps(one_rank, kSteps, "one"), gradients = with_steps(one_rank, 1, "one_step");
  EXPECT_LT(one.summary.steps.back().loss, 0.95 * one.summary.steps.front().loss)
      << "it must learn, or equal losses say little";
  const bool nightly = std::getenv("MS_NIGHTLY") != nullptr;
  for (const ExpertLayout& row : nightly ? every_layout() : kCovering) {
    SCOPED_TRACE(row.name());
    expect_gradients_near(with_steps(row, 1, row.name() + "_step"), gradients);
    expect_near(with_steps(row, kSteps, row.name()), one);
  }
}

// What the sparse mixer draws depends on the token alone, and a layer that runs again draws the same.
TEST(ExpertParallel, DrawnExpertsAreThoseOfOneRank) {
  const test::TemporaryFolder folder;
  const auto outcome = [&](const ExpertLayout& row, bool recomputes) {
    train::TrainerConfig config = config_of(folder, row);
    config.training.train_iters = 1;  // the next one may draw another expert where rounding moves its score
    config.training.moe_router_load_balancing_type = {"sparsemixer_topk"};
    config.training.moe_aux_loss_coeff = {0};
    if (recomputes) {
      config.training.recompute_granularity = "full";
      config.training.recompute_method = "uniform";
      config.training.recompute_num_layers = 1;
    }
    return run(config, folder, row, core::cat(row.name(), "drawn", recomputes));
  };
  const ExpertLayout one_rank{{}, 1, 1};
  const Outcome one = outcome(one_rank, false), again = outcome(one_rank, true);
  EXPECT_EQ(test::largest_distance(again.weights, one.weights), 0);
  for (const ExpertLayout& row :
       {ExpertLayout{{1, 1, 2}, 2, 1}, ExpertLayout{{2, 2, 1, false, true}, 2, 1, "allgather"},
        ExpertLayout{{1, 1, 1, 0, false, 1, "", "", 2, "p2p"}, 2, 1}}) {
    SCOPED_TRACE(row.name());
    const Outcome seen = outcome(row, false);
    expect_gradients_near(seen, one);
    EXPECT_NEAR(seen.summary.steps[0].loss, one.summary.steps[0].loss, 1e-5 * one.summary.steps[0].loss);
    for (const auto& [layer, load] : one.summary.steps[0].experts)
      EXPECT_EQ(seen.summary.steps[0].experts.at(layer).tokens, load.tokens) << "layer " << layer;
  }
}

TEST(ExpertParallel, NightlyTableHasAtLeast60Layouts) { EXPECT_GE(every_layout().size(), 60U); }

// Exchanges beside which shared experts, and gradients of weights, are computed.
TEST(ExpertParallel, OverlappedExchangesChangeNoBit) {
  const test::TemporaryFolder folder;
  const struct {
    ExpertLayout row;
    bool train::ExpertParallelConfig::*flag;
    bool gate, recompute;
  } cases[] = {
      {{{2, 1, 2, true, true}, 4, 1}, &train::ExpertParallelConfig::moe_alltoall_overlap_comm, true, false},
      {{{2, 1, 2, true, true}, 2, 2}, &train::ExpertParallelConfig::moe_alltoall_overlap_comm, false, true},
      {{{2, 1, 2, true, true}, 2, 2, "allgather"},
       &train::ExpertParallelConfig::moe_allgather_overlap_comm,
       true,
       true},
      {{{2, 1, 2, true, true}, 2, 2, "groups"}, &train::ExpertParallelConfig::moe_alltoall_overlap_comm, true, true},
      {{{2, 1, 2, true, true}, 4, 1, "hierarchical"},
       &train::ExpertParallelConfig::moe_alltoall_overlap_comm,
       true,
       true},
      {{{2, 1, 1, false, true}, 2, 1}, &train::ExpertParallelConfig::moe_shared_expert_overlap, false, false}};
  for (const auto& one : cases) {
    for (const bool bf16 : {false, true}) {
      SCOPED_TRACE(core::cat(one.row.name(), bf16 ? ", bf16" : ""));
      train::TrainerConfig config = config_of(folder, one.row);
      config.training.train_iters = 3;
      config.training.bf16 = bf16;
      config.model.moe_shared_expert_gate = one.gate;
      config.training.recompute_activation_function = one.recompute;
      const std::string name = core::cat(one.row.name(), one.gate, bf16);
      const Outcome off = run(config, folder, one.row, name + "off");
      config.parallel.*one.flag = true;
      const Outcome on = run(config, folder, one.row, name + "on");
      EXPECT_EQ(test::largest_distance(on.weights, off.weights), 0);
      EXPECT_EQ(test::largest_distance(on.moments, off.moments), 0);
      for (size_t i = 0; i < off.summary.steps.size(); ++i) {
        EXPECT_EQ(on.summary.steps[i].loss, off.summary.steps[i].loss);
        EXPECT_EQ(on.summary.steps[i].grad_norm, off.summary.steps[i].grad_norm);
      }
    }
  }
}

// Whole runs whose exchanges of one micro-batch are beside what another computes, or whose gradients of weights are
// computed apart.
TEST(ExpertParallel, OtherSchedulesChangeNoBit) {
  const test::TemporaryFolder folder;
  const struct {
    ExpertLayout row, plain;
    bool interleaves;
  } cases[] = {{{{1, 2, 2, true, false, 1, "dualpipev"}, 2, 1}, {{1, 2, 2, true}, 2, 1}, true},
               {{{1, 2, 2, true, false, 1, "dualpipev delayed"}, 2, 1}, {{1, 2, 2, true}, 2, 1}, true},
               {{{1, 1, 2}, 2, 1}, {{1, 1, 2}, 2, 1}, true},
               {{{1, 2, 2, false, false, 2}, 2, 1}, {{1, 2, 2}, 2, 1}, true},
               {{{2, 2, 2, true, true, 2}, 2, 2}, {{2, 2, 2, true, true}, 2, 2}, true},
               {{{2, 2, 1, false, true, 1, "dualpipev"}, 2, 1}, {{2, 2, 1, false, true}, 2, 1}, true},
               {{{1, 2, 2, false, false, 1, "dualpipev detached"}, 2, 1}, {{1, 2, 2}, 2, 1}, false},
               {{{1, 2, 2, false, false, 1, "zb-h1"}, 2, 1, "allgather"}, {{1, 2, 2}, 2, 1, "allgather"}, false},
               {{{2, 2, 1, true, true, 1, "zb-v"}, 1, 2}, {{2, 2, 1, true, true}, 1, 2}, false},
               {{{1, 2, 2, false, false, 2, "nanopipe"}, 2, 1}, {{1, 2, 2}, 2, 1}, false}};
  for (const auto& [row, plain, interleaves] : cases) {
    SCOPED_TRACE(row.name());
    const auto outcome = [&](const ExpertLayout& layout, bool on) {
      train::TrainerConfig config = config_of(folder, layout);
      config.training.train_iters = 3;
      config.parallel.moe_fb_overlap = on;
      return run(config, folder, layout, core::cat(row.name(), &layout == &row ? "own" : "plain", on));
    };
    const Outcome seen = outcome(row, interleaves), want = outcome(plain, false);
    EXPECT_EQ(test::largest_distance(seen.weights, want.weights), 0);
    EXPECT_EQ(test::largest_distance(seen.moments, want.moments), 0);
    for (size_t i = 0; i < want.summary.steps.size(); ++i) {
      EXPECT_EQ(seen.summary.steps[i].loss, want.summary.steps[i].loss);
      EXPECT_EQ(seen.summary.steps[i].grad_norm, want.summary.steps[i].grad_norm);
    }
  }
}

// --moe-tp-extend-ep gives each of TP x EP ranks whole experts: EP is TP times as much, and ETP is 1.
TEST(ExpertParallel, TpExtendsEp) {
  const test::TemporaryFolder folder;
  const ExpertLayout row{{2, 1, 2, true, true}, 2, 1}, same{{2, 1, 2, true, true}, 4, 1};
  train::TrainerConfig config = config_of(folder, row);
  config.training.train_iters = 3;
  config.parallel.expert_tensor_parallel_size.reset();
  config.parallel.moe_tp_extend_ep = true;
  const Outcome extended = run(config, folder, row, "extended");
  config = config_of(folder, same);
  config.training.train_iters = 3;
  const Outcome want = run(config, folder, same, "same");
  EXPECT_EQ(test::largest_distance(extended.weights, want.weights), 0);
  EXPECT_EQ(extended.summary.steps.back().loss, want.summary.steps.back().loss);
}

// Buckets of experts and of the rest are reduced while the backward runs, and gathered while the next forward does.
TEST(ExpertParallel, OverlappedBucketsChangeNoBit) {
  const test::TemporaryFolder folder;
  const ExpertLayout row{{2, 1, 4, true, true}, 2, 1};
  train::TrainerConfig config = config_of(folder, row);
  config.training.train_iters = 4;
  const Outcome plain = run(config, folder, row, "plain");
  config.parallel.overlap_grad_reduce = config.parallel.overlap_param_gather = true;
  config.parallel.ddp_bucket_size = 500;
  const Outcome overlapped = run(config, folder, row, "overlapped");
  EXPECT_EQ(test::largest_distance(overlapped.weights, plain.weights), 0);
  for (size_t i = 0; i < plain.summary.steps.size(); ++i)
    EXPECT_EQ(overlapped.summary.steps[i].grad_norm, plain.summary.steps[i].grad_norm);
}

TEST(ExpertParallel, RecomputationChangesNoBit) {
  const test::TemporaryFolder folder;
  for (const char* dispatcher : {"alltoall", "allgather"}) {
    const ExpertLayout row{{2, 1, 2, true, true}, 2, 2, dispatcher};
    train::TrainerConfig config = config_of(folder, row);
    config.training.train_iters = 3;
    const Outcome plain = run(config, folder, row, core::cat("plain_", dispatcher));
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "uniform";
    config.training.recompute_num_layers = 2;
    EXPECT_EQ(test::largest_distance(run(config, folder, row, core::cat("again_", dispatcher)).weights, plain.weights),
              0);
  }
}

// A norm behind the experts, whose backward reads what they give, and tensors that leave memory.
TEST(ExpertParallel, RecomputationAndSwapChangeNoBitWithANormBehind) {
  const test::TemporaryFolder folder;
  const ExpertLayout rows[] = {{{2, 1, 2, true, true}, 2, 2, "allgather"},
                               {{2, 1, 2, true, true}, 2, 2, "groups"},
                               {{2, 1, 2, true, true}, 4, 1, "hierarchical"},
                               {{1, 2, 2, true, false, 1, "dualpipev"}, 2, 1}};
  for (const ExpertLayout& row : rows) {
    SCOPED_TRACE(row.name());
    train::TrainerConfig config = config_of(folder, row);
    config.training.train_iters = 3;
    config.model.post_norm = true;
    config.parallel.moe_fb_overlap = row.layout.pp > 1;
    const Outcome plain = run(config, folder, row, "plain" + row.name());
    train::TrainerConfig swapped = config;
    swapped.training.swap_attention = true;
    swapped.training.swap_modules = "input_norm,self_attention,post_attention_norm";
    swapped.training.swap_dir = folder.path().string();
    swapped.training.swap_min_tensor_kib = 0;
    EXPECT_EQ(test::largest_distance(run(swapped, folder, row, "swapped" + row.name()).weights, plain.weights), 0);
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "uniform";
    config.training.recompute_num_layers = 1;
    EXPECT_EQ(test::largest_distance(run(config, folder, row, "again" + row.name()).weights, plain.weights), 0);
  }
}

// What experts have read travels once more in the backward, beside other exchanges or not.
TEST(ExpertParallel, RecomputedExpertsChangeNoBit) {
  const test::TemporaryFolder folder;
  const struct {
    const char* name;
    void (*set)(train::TrainingConfig&);
  } ways[] = {{"level0", [](train::TrainingConfig& c) { c.moe_zero_memory = "level0"; }},
              {"level1", [](train::TrainingConfig& c) { c.moe_zero_memory = "level1"; }},
              {"moe", [](train::TrainingConfig& c) { c.moe_layer_recompute = true; }}};
  for (const char* dispatcher : {"alltoall", "allgather"}) {
    const ExpertLayout row{{2, 1, 2, true, true}, 2, dispatcher[3] == 't' ? 1 : 2, dispatcher};
    train::TrainerConfig config = config_of(folder, row);
    config.training.train_iters = 3;
    config.training.moe_expert_capacity_factor = 1;
    const Outcome plain = run(config, folder, row, core::cat("plain_", dispatcher));
    for (const auto& way : ways) {
      for (const bool overlaps : {false, true}) {
        SCOPED_TRACE(core::cat(dispatcher, ", ", way.name, overlaps ? ", overlapped" : ""));
        train::TrainerConfig again = config;
        way.set(again.training);
        bool& flag =
            row.etp == 1 ? again.parallel.moe_alltoall_overlap_comm : again.parallel.moe_allgather_overlap_comm;
        flag = overlaps;
        const Outcome seen = run(again, folder, row, core::cat(way.name, "_", dispatcher, overlaps));
        EXPECT_EQ(test::largest_distance(seen.weights, plain.weights), 0);
        EXPECT_EQ(seen.summary.steps.back().grad_norm, plain.summary.steps.back().grad_norm);
      }
    }
  }
}

// bf16 weights with master weights, whole or shared, in two sections of the buffers.
TEST(ExpertParallel, MasterWeightsOfExpertsAreTheirs) {
  const test::TemporaryFolder folder;
  const ExpertLayout row{{1, 1, 4, true}, 2, 1};
  train::TrainerConfig config = config_of(folder, row);
  config.training.train_iters = 6;
  config.training.bf16 = true;
  const Outcome plain = run(config, folder, row, "plain");
  config.optimizer.reuse_fp32_param = true;
  const Outcome shared = run(config, folder, row, "shared");
  EXPECT_EQ(test::largest_distance(shared.weights, plain.weights), 0);
  EXPECT_EQ(test::largest_distance(test::read_tensors(shared.summary.checkpoint, core::TensorRole::kMaster),
                                   test::read_tensors(plain.summary.checkpoint, core::TensorRole::kMaster)),
            0);
}

// 10 steps on one layout and 10 on another are 20 on one rank.
TEST(ExpertParallel, ACheckpointContinuesOnAnyLayout) {
  const test::TemporaryFolder folder;
  const ExpertLayout one_rank{{}, 1, 1}, first{{2, 1, 2, true, true}, 2, 2};
  const ExpertLayout of_zero3{{2, 1, 4, 3, true}, 2, 1, "alltoall", 2, true};
  const ExpertLayout seconds[] = {{{1, 1, 4, true}, 4, 1},
                                  {{2, 1, 2, true, true}, 2, 1},
                                  {{1, 1, 2, true}, 1, 1},
                                  {{1, 2, 2, false}, 2, 1},
                                  {{1, 1, 4, 2}, 4, 1},
                                  {{2, 1, 2, 3, true}, 2, 1},
                                  {{1, 1, 4, 3}, 2, 1, "alltoall", 2, true},
                                  one_rank};
  train::TrainerConfig config = config_of(folder, one_rank);
  config.training.global_batch_size = 4;  // the whole run within an epoch, whose end would shuffle it otherwise
  const Outcome whole = run(config, folder, one_rank, "whole");
  const auto on = [&](const ExpertLayout& row, int64_t until) {
    train::TrainerConfig part = config_of(folder, row);
    part.training.global_batch_size = 4;
    part.training.train_iters = until;
    return part;
  };
  run(on(first, 10), folder, first, "first");
  run(on(of_zero3, 10), folder, of_zero3, "zero3");
  for (const ExpertLayout& row : seconds) {
    SCOPED_TRACE(row.name());
    train::TrainerConfig rest = on(row, 20);
    rest.checkpoint.load = folder / (row.layout.zero == 1 ? "first" : "zero3");
    const Outcome second = run(rest, folder, row, "second_" + row.name());
    ASSERT_EQ(second.summary.steps.size(), 10U);
    for (size_t i = 0; i < 10; ++i)
      EXPECT_NEAR(second.summary.steps[i].loss, whole.summary.steps[10 + i].loss,
                  1e-5 * whole.summary.steps[10 + i].loss);
    EXPECT_LT(test::largest_distance(second.weights, whole.weights), 1e-4);
  }
}

TEST(ExpertParallel, TextIsThatOfOneRank) {
  const test::TemporaryFolder folder;
  const ExpertLayout one_rank{{}, 1, 1}, spread[] = {{{1, 1, 2}, 2, 1}, {{2, 2, 1, false, true}, 1, 2, "allgather"}};
  run(config_of(folder, one_rank), folder, one_rank, "one");
  const auto text_on = [&](const ExpertLayout& row) {
    train::TrainerConfig config = config_of(folder, row);
    config.checkpoint.load = folder / "one";
    config.generate.generate = "ab";
    config.generate.num_tokens_to_generate = 6;
    config.generate.temperature = 0;
    return test::run_on_threads(config, row.layout.ranks()).generated;
  };
  const std::string text = text_on(one_rank);
  EXPECT_GT(text.size(), 2U);
  for (const ExpertLayout& row : spread) EXPECT_EQ(text_on(row), text) << row.name();
}

TEST(ExpertParallel, TenAndTenStepsEqualTwentyBitForBit) {
  const ExpertLayout rows[] = {{{2, 1, 2, true, true}, 2, 1},
                               {{1, 1, 4, 2}, 2, 1},
                               {{2, 1, 2, 3, true}, 4, 1},
                               {{1, 1, 4, 3}, 2, 1, "alltoall", 2, true}};
  for (const ExpertLayout& row : rows) {
    SCOPED_TRACE(row.name());
    const test::TemporaryFolder folder;
    train::TrainerConfig config = config_of(folder, row);
    config.training.global_batch_size = 4;
    config.training.bf16 = row.layout.zero > 1;
    const Outcome whole = run(config, folder, row, "whole");
    config.training.train_iters = 10;
    run(config, folder, row, "parts");
    config.training.train_iters = 20;
    config.checkpoint.load = folder / "parts";
    const Outcome second = run(config, folder, row, "parts");
    EXPECT_EQ(test::largest_distance(second.weights, whole.weights), 0);
    EXPECT_EQ(test::largest_distance(second.moments, whole.moments), 0);
  }
}

// ZeRO-2 has the bits of ZeRO-1 in a step of one micro-batch, ZeRO-3 those of ZeRO-2 in any, with all its gradients and
// weights in slots that a layer and its experts share.
TEST(ExpertParallel, StagesOfZeroHaveTheSameBits) {
  const ExpertLayout rows[] = {{{1, 1, 4}, 2, 1}, {{1, 1, 4}, 4, 1}, {{2, 1, 2, 0, true}, 2, 1}, {{1, 2, 4}, 2, 1}};
  for (const ExpertLayout& row : rows) {
    for (const bool bf16 : {false, true}) {
      SCOPED_TRACE(core::cat(row.name(), bf16 ? " bf16" : ""));
      const test::TemporaryFolder folder;
      const auto of_stage = [&](int zero, int64_t batch) {
        ExpertLayout staged = row;
        staged.layout.zero = zero;
        train::TrainerConfig config = config_of(folder, staged);
        config.training.train_iters = 4;
        config.training.bf16 = bf16;
        config.parallel.shared_memory = !bf16;
        config.training.global_batch_size = batch;
        return run(config, folder, staged, core::cat("zero", zero, "_", batch));
      };
      const auto expect_equal = [](const Outcome& seen, const Outcome& want) {
        for (size_t i = 0; i < want.summary.steps.size(); ++i) {
          EXPECT_EQ(seen.summary.steps[i].loss, want.summary.steps[i].loss) << "step " << i + 1;
          EXPECT_EQ(seen.summary.steps[i].grad_norm, want.summary.steps[i].grad_norm) << "step " << i + 1;
        }
        EXPECT_EQ(test::largest_distance(seen.weights, want.weights), 0);
        EXPECT_EQ(test::largest_distance(seen.moments, want.moments), 0);
      };
      expect_equal(of_stage(2, row.layout.dp), of_stage(1, row.layout.dp));
      expect_equal(of_stage(3, 2 * row.layout.dp), of_stage(2, 2 * row.layout.dp));
    }
  }
}

struct Refused {
  const char* words;
  core::ErrorCode code;
  void (*change)(train::TrainerConfig&);
};

TEST(ExpertParallel, WhatDoesNotFitIsRefusedByName) {
  constexpr auto kInvalid = core::ErrorCode::kInvalidArgument;
  const Refused cases[] = {
      {"--expert-model-parallel-size needs --num-experts", kInvalid,
       [](train::TrainerConfig& c) {
         c.model.num_experts = 0;
         c.training.moe_z_loss_coeff.reset();
       }},
      {"--expert-model-parallel-size 3 x --expert-tensor-parallel-size 1", kInvalid,
       [](train::TrainerConfig& c) { c.parallel.expert_model_parallel_size = 3; }},
      {"--num-experts 4 is not a multiple of --expert-model-parallel-size 8", kInvalid,
       [](train::TrainerConfig& c) { c.parallel.expert_model_parallel_size = 8; }},
      {"needs --sequence-parallel", kInvalid,
       [](train::TrainerConfig& c) { c.parallel.tensor_model_parallel_size = 2; }},
      {"--moe-token-dispatcher-type flex", kInvalid,
       [](train::TrainerConfig& c) { c.parallel.moe_token_dispatcher_type = "flex"; }},
      {"--expert-model-parallel-size 8 (with --moe-tp-extend-ep)", kInvalid,
       [](train::TrainerConfig& c) {
         c.parallel.tensor_model_parallel_size = c.parallel.pipeline_model_parallel_size = 2;
         c.parallel.sequence_parallel = c.parallel.moe_tp_extend_ep = true;
         c.parallel.expert_model_parallel_size = 4;
       }},
  };
  const test::TemporaryFolder folder;
  for (const Refused& one : cases) {
    train::TrainerConfig config = config_of(folder, {{1, 1, 8}, 2, 1});
    config.parallel.expert_tensor_parallel_size = 1;
    config.model.vocab_size = 257;
    one.change(config);
    const test::Thrown thrown = test::thrown_by([&] { config.resolve_and_validate(8); });
    EXPECT_EQ(thrown.code, one.code) << thrown.text;
    EXPECT_NE(thrown.text.find(one.words), std::string::npos) << thrown.text;
  }
}

}  // namespace
}  // namespace ms
