// What changes no bit of runs with experts on several ranks: what is beside their exchanges, schedules, buckets,
// recomputation and swap, shared master weights, and stages of ZeRO.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/expert_run.h"

namespace ms {
namespace {

using test::ExpertLayout;
using test::ExpertOutcome;

// Exchanges beside which shared experts, and gradients of weights, are computed.
TEST(ExpertBits, OverlappedExchangesChangeNoBit) {
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
      train::TrainerConfig config = expert_config(folder, one.row);
      config.training.train_iters = 3;
      config.training.bf16 = bf16;
      config.model.moe_shared_expert_gate = one.gate;
      config.training.recompute_activation_function = one.recompute;
      const std::string name = core::cat(one.row.name(), one.gate, bf16);
      const ExpertOutcome off = run_experts(config, folder, one.row, name + "off");
      config.parallel.*one.flag = true;
      const ExpertOutcome on = run_experts(config, folder, one.row, name + "on");
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
TEST(ExpertBits, OtherSchedulesChangeNoBit) {
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
      train::TrainerConfig config = expert_config(folder, layout);
      config.training.train_iters = 3;
      config.parallel.moe_fb_overlap = on;
      return run_experts(config, folder, layout, core::cat(row.name(), &layout == &row ? "own" : "plain", on));
    };
    const ExpertOutcome seen = outcome(row, interleaves), want = outcome(plain, false);
    EXPECT_EQ(test::largest_distance(seen.weights, want.weights), 0);
    EXPECT_EQ(test::largest_distance(seen.moments, want.moments), 0);
    for (size_t i = 0; i < want.summary.steps.size(); ++i) {
      EXPECT_EQ(seen.summary.steps[i].loss, want.summary.steps[i].loss);
      EXPECT_EQ(seen.summary.steps[i].grad_norm, want.summary.steps[i].grad_norm);
    }
  }
}

// --moe-tp-extend-ep gives each of TP x EP ranks whole experts: EP is TP times as much, and ETP is 1.
TEST(ExpertBits, TpExtendsEp) {
  const test::TemporaryFolder folder;
  const ExpertLayout row{{2, 1, 2, true, true}, 2, 1}, same{{2, 1, 2, true, true}, 4, 1};
  train::TrainerConfig config = expert_config(folder, row);
  config.training.train_iters = 3;
  config.parallel.expert_tensor_parallel_size.reset();
  config.parallel.moe_tp_extend_ep = true;
  const ExpertOutcome extended = run_experts(config, folder, row, "extended");
  config = expert_config(folder, same);
  config.training.train_iters = 3;
  const ExpertOutcome want = run_experts(config, folder, same, "same");
  EXPECT_EQ(test::largest_distance(extended.weights, want.weights), 0);
  EXPECT_EQ(extended.summary.steps.back().loss, want.summary.steps.back().loss);
}

// Buckets of experts and of the rest are reduced while the backward runs, and gathered while the next forward does.
TEST(ExpertBits, OverlappedBucketsChangeNoBit) {
  const test::TemporaryFolder folder;
  const ExpertLayout row{{2, 1, 4, true, true}, 2, 1};
  train::TrainerConfig config = expert_config(folder, row);
  config.training.train_iters = 4;
  const ExpertOutcome plain = run_experts(config, folder, row, "plain");
  config.parallel.overlap_grad_reduce = config.parallel.overlap_param_gather = true;
  config.parallel.ddp_bucket_size = 500;
  const ExpertOutcome overlapped = run_experts(config, folder, row, "overlapped");
  EXPECT_EQ(test::largest_distance(overlapped.weights, plain.weights), 0);
  for (size_t i = 0; i < plain.summary.steps.size(); ++i)
    EXPECT_EQ(overlapped.summary.steps[i].grad_norm, plain.summary.steps[i].grad_norm);
}

TEST(ExpertBits, RecomputationChangesNoBit) {
  const test::TemporaryFolder folder;
  for (const char* dispatcher : {"alltoall", "allgather"}) {
    const ExpertLayout row{{2, 1, 2, true, true}, 2, 2, dispatcher};
    train::TrainerConfig config = expert_config(folder, row);
    config.training.train_iters = 3;
    const ExpertOutcome plain = run_experts(config, folder, row, core::cat("plain_", dispatcher));
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "uniform";
    config.training.recompute_num_layers = 2;
    EXPECT_EQ(test::largest_distance(run_experts(config, folder, row, core::cat("again_", dispatcher)).weights,
                                     plain.weights),
              0);
  }
}

// A norm behind the experts, whose backward reads what they give, and tensors that leave memory.
TEST(ExpertBits, RecomputationAndSwapChangeNoBitWithANormBehind) {
  const test::TemporaryFolder folder;
  const ExpertLayout rows[] = {{{2, 1, 2, true, true}, 2, 2, "allgather"},
                               {{2, 1, 2, true, true}, 2, 2, "groups"},
                               {{2, 1, 2, true, true}, 4, 1, "hierarchical"},
                               {{1, 2, 2, true, false, 1, "dualpipev"}, 2, 1}};
  for (const ExpertLayout& row : rows) {
    SCOPED_TRACE(row.name());
    train::TrainerConfig config = expert_config(folder, row);
    config.training.train_iters = 3;
    config.model.post_norm = true;
    config.parallel.moe_fb_overlap = row.layout.pp > 1;
    const ExpertOutcome plain = run_experts(config, folder, row, "plain" + row.name());
    train::TrainerConfig swapped = config;
    swapped.training.swap_attention = true;
    swapped.training.swap_modules = "input_norm,self_attention,post_attention_norm";
    swapped.training.swap_dir = folder.path().string();
    swapped.training.swap_min_tensor_kib = 0;
    EXPECT_EQ(test::largest_distance(run_experts(swapped, folder, row, "swapped" + row.name()).weights, plain.weights),
              0);
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "uniform";
    config.training.recompute_num_layers = 1;
    EXPECT_EQ(test::largest_distance(run_experts(config, folder, row, "again" + row.name()).weights, plain.weights), 0);
  }
}

// What experts have read travels once more in the backward, beside other exchanges or not.
TEST(ExpertBits, RecomputedExpertsChangeNoBit) {
  const test::TemporaryFolder folder;
  const struct {
    const char* name;
    void (*set)(train::TrainingConfig&);
  } ways[] = {{"level0", [](train::TrainingConfig& c) { c.moe_zero_memory = "level0"; }},
              {"level1", [](train::TrainingConfig& c) { c.moe_zero_memory = "level1"; }},
              {"moe", [](train::TrainingConfig& c) { c.moe_layer_recompute = true; }}};
  for (const char* dispatcher : {"alltoall", "allgather"}) {
    const ExpertLayout row{{2, 1, 2, true, true}, 2, dispatcher[3] == 't' ? 1 : 2, dispatcher};
    train::TrainerConfig config = expert_config(folder, row);
    config.training.train_iters = 3;
    config.training.moe_expert_capacity_factor = 1;
    const ExpertOutcome plain = run_experts(config, folder, row, core::cat("plain_", dispatcher));
    for (const auto& way : ways) {
      for (const bool overlaps : {false, true}) {
        SCOPED_TRACE(core::cat(dispatcher, ", ", way.name, overlaps ? ", overlapped" : ""));
        train::TrainerConfig again = config;
        way.set(again.training);
        bool& flag =
            row.etp == 1 ? again.parallel.moe_alltoall_overlap_comm : again.parallel.moe_allgather_overlap_comm;
        flag = overlaps;
        const ExpertOutcome seen = run_experts(again, folder, row, core::cat(way.name, "_", dispatcher, overlaps));
        EXPECT_EQ(test::largest_distance(seen.weights, plain.weights), 0);
        EXPECT_EQ(seen.summary.steps.back().grad_norm, plain.summary.steps.back().grad_norm);
      }
    }
  }
}

// bf16 weights with master weights, whole or shared, in two sections of the buffers.
TEST(ExpertBits, MasterWeightsOfExpertsAreTheirs) {
  const test::TemporaryFolder folder;
  const ExpertLayout row{{1, 1, 4, true}, 2, 1};
  train::TrainerConfig config = expert_config(folder, row);
  config.training.train_iters = 6;
  config.training.bf16 = true;
  const ExpertOutcome plain = run_experts(config, folder, row, "plain");
  config.optimizer.reuse_fp32_param = true;
  const ExpertOutcome shared = run_experts(config, folder, row, "shared");
  EXPECT_EQ(test::largest_distance(shared.weights, plain.weights), 0);
  EXPECT_EQ(test::largest_distance(test::read_tensors(shared.summary.checkpoint, core::TensorRole::kMaster),
                                   test::read_tensors(plain.summary.checkpoint, core::TensorRole::kMaster)),
            0);
}

// ZeRO-2 has the bits of ZeRO-1 in a step of one micro-batch, ZeRO-3 those of ZeRO-2 in any, with all its gradients and
// weights in slots that a layer and its experts share.
TEST(ExpertBits, StagesOfZeroHaveTheSameBits) {
  const ExpertLayout rows[] = {{{1, 1, 4}, 2, 1}, {{1, 1, 4}, 4, 1}, {{2, 1, 2, 0, true}, 2, 1}, {{1, 2, 4}, 2, 1}};
  for (const ExpertLayout& row : rows) {
    for (const bool bf16 : {false, true}) {
      SCOPED_TRACE(core::cat(row.name(), bf16 ? " bf16" : ""));
      const test::TemporaryFolder folder;
      const auto of_stage = [&](int zero, int64_t batch) {
        ExpertLayout staged = row;
        staged.layout.zero = zero;
        train::TrainerConfig config = expert_config(folder, staged);
        config.training.train_iters = 4;
        config.training.bf16 = bf16;
        config.parallel.shared_memory = !bf16;
        config.training.global_batch_size = batch;
        return run_experts(config, folder, staged, core::cat("zero", zero, "_", batch));
      };
      const auto expect_equal = [](const ExpertOutcome& seen, const ExpertOutcome& want) {
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

}  // namespace
}  // namespace ms
