// Runs with experts on several ranks against one rank, and checkpoints from one layout of experts to another.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/expert_run.h"
#include "tests/support/thrown.h"

namespace ms {
namespace {

using test::ExpertLayout;
using test::ExpertOutcome;
using test::TinyLayout;

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
    {{1, 1, 2, 1, false, 1, "", "", 2, "a2a,p2p"}, 4, 1},
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

void expect_near(const ExpertOutcome& seen, const ExpertOutcome& want) {
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
void expect_gradients_near(const ExpertOutcome& seen, const ExpertOutcome& want) {
  EXPECT_LT(test::largest_distance(seen.moments, want.moments), 1e-4);
  EXPECT_NEAR(seen.summary.steps[0].grad_norm, want.summary.steps[0].grad_norm, 1e-5 * want.summary.steps[0].grad_norm)
      << "each expert counts once";
}

TEST(ExpertParallel, EveryLayoutAgreesWithOneRank) {
  const test::TemporaryFolder folder;
  const ExpertLayout one_rank{{}, 1, 1};
  const auto with_steps = [&](const ExpertLayout& row, int64_t steps, const std::string& name) {
    train::TrainerConfig config = expert_config(folder, row);
    config.training.train_iters = steps;
    return run_experts(config, folder, row, name);
  };
  constexpr int64_t kSteps = 20;
  const ExpertOutcome one = with_steps(one_rank, kSteps, "one"), gradients = with_steps(one_rank, 1, "one_step");
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
    train::TrainerConfig config = expert_config(folder, row);
    config.training.train_iters = 1;  // the next one may draw another expert where rounding moves its score
    config.training.moe_router_load_balancing_type = {"sparsemixer_topk"};
    config.training.moe_aux_loss_coeff = {0};
    if (recomputes) {
      config.training.recompute_granularity = "full";
      config.training.recompute_method = "uniform";
      config.training.recompute_num_layers = 1;
    }
    return run_experts(config, folder, row, core::cat(row.name(), "drawn", recomputes));
  };
  const ExpertLayout one_rank{{}, 1, 1};
  const ExpertOutcome one = outcome(one_rank, false), again = outcome(one_rank, true);
  EXPECT_EQ(test::largest_distance(again.weights, one.weights), 0);
  for (const ExpertLayout& row :
       {ExpertLayout{{1, 1, 2}, 2, 1}, ExpertLayout{{2, 2, 1, false, true}, 2, 1, "allgather"},
        ExpertLayout{{1, 1, 1, 0, false, 1, "", "", 2, "p2p"}, 2, 1}}) {
    SCOPED_TRACE(row.name());
    const ExpertOutcome seen = outcome(row, false);
    expect_gradients_near(seen, one);
    EXPECT_NEAR(seen.summary.steps[0].loss, one.summary.steps[0].loss, 1e-5 * one.summary.steps[0].loss);
    for (const auto& [layer, load] : one.summary.steps[0].experts)
      EXPECT_EQ(seen.summary.steps[0].experts.at(layer).tokens, load.tokens) << "layer " << layer;
  }
}

TEST(ExpertParallel, NightlyTableHasAtLeast60Layouts) { EXPECT_GE(every_layout().size(), 60U); }

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
  train::TrainerConfig config = expert_config(folder, one_rank);
  config.training.global_batch_size = 4;  // the whole run within an epoch, whose end would shuffle it otherwise
  const ExpertOutcome whole = run_experts(config, folder, one_rank, "whole");
  const auto on = [&](const ExpertLayout& row, int64_t until) {
    train::TrainerConfig part = expert_config(folder, row);
    part.training.global_batch_size = 4;
    part.training.train_iters = until;
    return part;
  };
  run_experts(on(first, 10), folder, first, "first");
  run_experts(on(of_zero3, 10), folder, of_zero3, "zero3");
  for (const ExpertLayout& row : seconds) {
    SCOPED_TRACE(row.name());
    train::TrainerConfig rest = on(row, 20);
    rest.checkpoint.load = folder / (row.layout.zero == 1 ? "first" : "zero3");
    const ExpertOutcome second = run_experts(rest, folder, row, "second_" + row.name());
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
  run_experts(expert_config(folder, one_rank), folder, one_rank, "one");
  const auto text_on = [&](const ExpertLayout& row) {
    train::TrainerConfig config = expert_config(folder, row);
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
    train::TrainerConfig config = expert_config(folder, row);
    config.training.global_batch_size = 4;
    config.training.bf16 = row.layout.zero > 1;
    const ExpertOutcome whole = run_experts(config, folder, row, "whole");
    config.training.train_iters = 10;
    run_experts(config, folder, row, "parts");
    config.training.train_iters = 20;
    config.checkpoint.load = folder / "parts";
    const ExpertOutcome second = run_experts(config, folder, row, "parts");
    EXPECT_EQ(test::largest_distance(second.weights, whole.weights), 0);
    EXPECT_EQ(test::largest_distance(second.moments, whole.moments), 0);
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
    train::TrainerConfig config = expert_config(folder, {{1, 1, 8}, 2, 1});
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
