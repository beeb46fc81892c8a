// Experts of samples of their own lengths: padding reaches none and counts in no balance loss, and replicas that share
// experts have micro-batches of other lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/layout/formulas/communication.h"
#include "tests/support/expert_run.h"
#include "tests/support/log_normal_documents.h"
#include "tests/train/own_length_step.h"
#include "train/data/build_datasets.h"
#include "train/loop/group_counters.h"

namespace ms::train {
namespace {

using test::ExpertLayout;
using test::ExpertOutcome;
using test::TinyLayout;

constexpr int64_t kSeq = 64;

void use_experts(TrainerConfig& config) {
  config.model.num_experts = 4;
  config.model.moe_router_topk = 2;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_layer_freq = "([1,0,1,1])";
  config.model.moe_shared_expert_intermediate_size = 16;
  config.model.init_method_std = 0.1;  // scores that rounding does not reorder
  config.training.moe_aux_loss_coeff = {0.02};
  config.training.moe_z_loss_coeff = 0.001;
}

void balance_by(TrainerConfig& config, std::vector<std::string> types) {
  config.training.moe_aux_loss_coeff.assign(types.size(), 0.02);
  config.training.moe_router_load_balancing_type = std::move(types);
}

struct Kind {
  const char* name;
  void (*change)(TrainerConfig&);
};

const Kind kKinds[] = {{"auxiliary and z losses", [](TrainerConfig&) {}},
                       {"losses of samples and of the step",
                        [](TrainerConfig& c) {
                          balance_by(c, {"seq_aux_loss", "global_aux_loss"});
                        }},
                       {"sinkhorn",
                        [](TrainerConfig& c) {
                          balance_by(c, {"sinkhorn"});
                          c.training.moe_aux_loss_coeff = {0};
                        }},
                       {"a capacity", [](TrainerConfig& c) { c.training.moe_expert_capacity_factor = 0.8; }},
                       {"a capacity by position",
                        [](TrainerConfig& c) {
                          c.training.moe_expert_capacity_factor = 0.8;
                          c.training.moe_token_drop_policy = "position";
                        }},
                       {"drawn experts, and noise",
                        [](TrainerConfig& c) {
                          balance_by(c, {"sparsemixer_topk"});
                          c.training.moe_aux_loss_coeff = {0};
                          c.training.moe_input_jitter_eps = 0.01;
                        }},
                       {"the best groups",
                        [](TrainerConfig& c) {
                          balance_by(c, {"group_limited_greedy"});
                          c.model.moe_router_num_groups = 2;
                          c.model.moe_router_group_topk = 1;
                        }},
                       {"layers that run again", [](TrainerConfig& c) {
                          c.training.recompute_granularity = "full";
                          c.training.recompute_method = "uniform";
                          c.training.recompute_num_layers = 1;
                        }}};

// Micro-batches of two samples, of which one is padded, and padded further for all ranks to have their part.
TEST(ExpertLengths, PaddingReachesNoExpertAndCountsNowhere) {
  const test::OwnLengthDocuments documents(kSeq, {5, 64, 17, 1, 33, 8, 60, 2});
  struct Row {
    TinyLayout layout;
    int ep, etp;
    const char* dispatcher;
  };
  const Row rows[] = {{{}, 1, 1, "alltoall"},
                      {{2, 1, 1, 0, true}, 2, 1, "allgather"},
                      {{2, 1, 1, 0, true}, 1, 2, "alltoall"},
                      {{.cp = 2, .context = "p2p"}, 2, 1, "alltoall"},
                      {{.tp = 2, .sp = true, .cp = 2, .context = "all_gather"}, 4, 1, "hierarchical"}};
  for (const Kind& kind : kKinds) {
    const auto step = [&](const Row& row, Lengths lengths) {
      return step_of_lengths(row.layout, documents, lengths, [&](TrainerConfig& config) {
        use_experts(config);
        config.training.micro_batch_size = 2;
        config.parallel.expert_model_parallel_size = row.ep;
        config.parallel.expert_tensor_parallel_size = row.etp;
        test::set_dispatcher(config, row.dispatcher, row.ep, row.layout.tp);
        kind.change(config);
      });
    };
    const LengthsOutcome one = step(rows[0], Lengths::kPadded);
    for (const Row& row : rows) {
      SCOPED_TRACE(core::cat(kind.name, ", ", row.layout.name(), ", EP ", row.ep, ", ", row.dispatcher));
      const LengthsOutcome own = step(row, Lengths::kOwn);
      EXPECT_NEAR(own.loss, one.loss, 1e-5 * one.loss);
      // Ranks of TP have parts of the gradients.
      const LengthsOutcome padded = row.layout.tp == 1 ? one : step(row, Lengths::kPadded);
      EXPECT_LT(test::largest_distance(own.gradients, padded.gradients), 2e-5);
    }
  }
}

class ExpertLengthsOfRuns : public testing::Test {
 protected:
  TrainerConfig config(const ExpertLayout& row, bool chooses_degrees = false) {
    const std::string prefix = folder_ / "documents";
    if (!std::filesystem::exists(idx_path(prefix)))
      test::write_documents(prefix, test::log_normal_lengths(200, 20, 1, 3));
    TrainerConfig config = test::expert_config(folder_, row);
    config.data.data_path = {prefix};
    config.training.seq_length = kSeq;
    config.training.train_iters = 4;
    config.training.global_batch_size = 16;
    config.training.calculate_per_token_loss = true;
    config.parallel.variable_seq_lengths = true;
    if (!chooses_degrees) return config;
    config.parallel.hybrid_context_parallel = true;
    config.parallel.max_seqlen_per_dp_cp_rank = kSeq / row.layout.cp;
    return config;
  }

  ExpertOutcome run(const TrainerConfig& config, const ExpertLayout& row, const std::string& name) {
    return test::run_experts(config, folder_, row, name);
  }

  static void expect_near(const ExpertOutcome& seen, const ExpertOutcome& one) {
    ASSERT_EQ(seen.summary.steps.size(), one.summary.steps.size());
    for (size_t i = 0; i < one.summary.steps.size(); ++i) {
      const StepMetrics &a = seen.summary.steps[i], &b = one.summary.steps[i];
      EXPECT_NEAR(a.loss, b.loss, 1e-5 * b.loss) << "step " << i + 1;
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-3 * b.grad_norm) << "step " << i + 1;
    }
    for (const auto& [layer, load] : one.summary.steps.front().experts) {
      const LayerLoad& own = seen.summary.steps.front().experts.at(layer);
      EXPECT_EQ(own.tokens, load.tokens) << "layer " << layer;
      EXPECT_EQ(own.dropped, load.dropped) << "layer " << layer;
      EXPECT_EQ(own.microbatches, load.microbatches) << "layer " << layer;
      EXPECT_NEAR(own.losses.aux, load.losses.aux, 1e-6 * load.losses.aux) << "layer " << layer;
      EXPECT_NEAR(own.losses.seq_aux, load.losses.seq_aux, 1e-6 * load.losses.seq_aux) << "layer " << layer;
      EXPECT_NEAR(own.losses.z, load.losses.z, 1e-6 * load.losses.z) << "layer " << layer;
    }
    // After one step the first moments are the gradients; later ones move small gradients' weights as far as others.
    if (one.summary.steps.size() == 1) {
      EXPECT_LT(test::largest_distance(seen.moments, one.moments), 1e-4);
    } else {
      EXPECT_LT(test::largest_distance(seen.weights, one.weights), 1e-4);
    }
  }

  test::TemporaryFolder folder_;
};

const ExpertLayout kOneRank{{}, 1, 1};

TEST_F(ExpertLengthsOfRuns, AgreeWithOneRankInEveryLayout) {
  const ExpertOutcome one = run(config(kOneRank), kOneRank, "one");
  int64_t chosen = 0;
  for (const int64_t tokens : one.summary.steps.front().experts.begin()->second.tokens) chosen += tokens;
  EXPECT_EQ(chosen, 2 * one.summary.steps.front().tokens);
  const ExpertLayout rows[] = {{{1, 1, 2}, 2, 1},
                               {{1, 1, 2, true}, 2, 1, "allgather"},
                               {{1, 1, 4, 3}, 4, 1},
                               {{1, 1, 4, 2}, 2, 1, "allgather"},
                               {{1, 2, 2, true}, 2, 1},
                               {{1, 2, 2, false, false, 2}, 2, 1, "allgather"},
                               {{1, 2, 2, true, false, 1, "dualpipev"}, 2, 1},
                               {{2, 1, 2, true, true}, 2, 2},
                               {{2, 1, 2, 3, true}, 2, 2, "allgather"},
                               {{2, 1, 2, true, true}, 4, 1, "hierarchical"},
                               {{1, 1, 4, 3}, 2, 1, "groups"},
                               {{1, 1, 2, 1, false, 1, "", "", 2, "p2p"}, 4, 1, "allgather"},
                               {{1, 1, 2, 3, false, 1, "", "", 2, "a2a"}, 4, 1},
                               {{1, 1, 1, 0, false, 1, "", "", 4, "adaptive"}, 2, 1},
                               {{2, 1, 2, 0, true, 1, "", "", 2, "all_gather"}, 2, 2}};
  for (const ExpertLayout& row : rows) {
    SCOPED_TRACE(row.name());
    TrainerConfig changed = config(row);
    if (row.layout.schedule == "dualpipev") changed.parallel.moe_fb_overlap = true;
    expect_near(run(changed, row, row.name()), one);
  }
}

// On replicas that share experts, of which each has padding of its own.
TEST_F(ExpertLengthsOfRuns, AgreeWithOneRankInOtherKinds) {
  const std::vector<Kind> more = {
      {"experts run again", [](TrainerConfig& c) { c.training.moe_layer_recompute = true; }},
      {"rows sent again", [](TrainerConfig& c) { c.training.moe_zero_memory = "level0"; }},
      {"uneven layers run again",
       [](TrainerConfig& c) {
         c.training.moe_adaptive_recompute_activation = true;
         c.training.moe_adaptive_recompute_activation_scale = 1.3;
       }},
      {"a bias of the choice",
       [](TrainerConfig& c) {
         c.model.moe_router_score_function = "sigmoid";
         c.model.moe_router_enable_expert_bias = true;
       }},
      {"samples dealt by cost", [](TrainerConfig& c) {
         c.parallel.hybrid_context_parallel = true;
         c.parallel.max_seqlen_per_dp_cp_rank = kSeq;
       }}};
  std::vector<Kind> kinds(std::begin(kKinds) + 1, std::end(kKinds));
  kinds.insert(kinds.end(), more.begin(), more.end());
  for (const Kind& kind : kinds) {
    const bool is_dealt = std::string(kind.name) == "samples dealt by cost";
    const auto outcome = [&](const ExpertLayout& row) {
      TrainerConfig changed = config(row);
      changed.training.train_iters = 1;
      changed.training.micro_batch_size = is_dealt ? 1 : 2;
      kind.change(changed);
      if (std::string(kind.name).starts_with("losses of samples")) balance_by(changed, {"seq_aux_loss", "aux_loss"});
      return run(changed, row, core::cat(row.name(), kind.name));
    };
    const ExpertOutcome one = outcome(kOneRank);
    for (const ExpertLayout& row :
         {ExpertLayout{{1, 1, 2}, 2, 1}, ExpertLayout{{2, 1, 2, true, true}, 2, 1, "allgather"}}) {
      SCOPED_TRACE(core::cat(kind.name, ", ", row.name()));
      expect_near(outcome(row), one);
    }
  }
}

// Rounds of one, two and four ranks, in which the ranks of experts have other samples.
TEST_F(ExpertLengthsOfRuns, OfChosenDegreesAgreeWithOneRank) {
  for (const Kind& kind : {kKinds[0], kKinds[2], kKinds[3], kKinds[7]}) {
    const auto outcome = [&](const ExpertLayout& row) {
      TrainerConfig changed = config(row, row.layout.cp > 1);
      changed.training.train_iters = 1;
      kind.change(changed);
      return run(changed, row, core::cat(row.name(), kind.name, "chosen"));
    };
    const ExpertOutcome one = outcome(kOneRank);
    for (const ExpertLayout& row :
         {ExpertLayout{{.cp = 4, .context = "p2p"}, 2, 1}, ExpertLayout{{.cp = 4, .context = "a2a"}, 4, 1, "allgather"},
          ExpertLayout{{.dp = 2, .zero = 3, .cp = 2, .context = "all_gather"}, 4, 1},
          ExpertLayout{{.tp = 2, .sp = true, .cp = 4, .context = "p2p"}, 2, 2}}) {
      SCOPED_TRACE(core::cat(kind.name, ", ", row.name()));
      const ExpertOutcome seen = outcome(row);
      ASSERT_TRUE(seen.summary.steps[0].dealt);
      EXPECT_GT(seen.summary.steps[0].dealt->rounds[0], 0);
      EXPECT_GT(seen.summary.steps[0].dealt->rounds[static_cast<size_t>(row.layout.cp / 2)], 0);
      expect_near(seen, one);
    }
  }
}

// Of all ranks together: rows go where the router sends them, and come back to the rank whose tokens they are.
TEST_F(ExpertLengthsOfRuns, ExchangeWhatThePlanOfTheirLengthsSays) {
  for (const ExpertLayout& row : {ExpertLayout{{1, 1, 2}, 2, 1}, ExpertLayout{{1, 1, 4}, 4, 1, "allgather"},
                                  ExpertLayout{{2, 1, 2, 0, true}, 4, 1, "hierarchical"}}) {
    SCOPED_TRACE(row.name());
    TrainerConfig changed = config(row);
    changed.training.train_iters = 1;
    changed.parallel.shared_memory = false;
    const int ranks = row.layout.ranks();
    GroupCounters seen{}, planned{};
    for (const RunSummary& summary : test::run_all_on_threads(changed, ranks)) {
      for (size_t group = 0; group < seen.size(); ++group) {
        for (size_t op = 0; op < core::kNumCommOps; ++op) {
          seen[group][op].calls += summary.communication[group][op].calls;
          seen[group][op].payload_bytes += summary.communication[group][op].payload_bytes;
        }
      }
    }
    changed.model.vocab_size = 257;
    changed.resolve_and_validate(ranks);
    const TrainValidTest data = build_datasets(changed.data, kSeq, static_cast<uint64_t>(changed.rng.seed),
                                               changed.num_train_samples(), 0, 0, {}, nullptr, SampleKind::kDocument);
    layout::TrainingStep of_sample = changed.training_step(ranks);
    of_sample.num_microbatches = 1;
    const int64_t multiple = sequence_multiple(changed.parallel);
    for (int64_t sample = 0; sample < changed.training.global_batch_size; ++sample) {
      of_sample.seq_length = (data.train->sample_length(sample) + multiple - 1) / multiple * multiple;
      for (int tp = 0; tp < row.layout.tp; ++tp) {
        for (const layout::Traffic& of : layout::step_traffic(of_sample, tp)) {
          core::CommCounter& counter = planned[static_cast<size_t>(of.group)][static_cast<size_t>(of.op)];
          counter.calls += of.calls;
          counter.payload_bytes += of.payload_bytes;
        }
      }
    }
    int64_t calls = 0;
    for (const layout::Group group : {layout::Group::kEp, layout::Group::kEpOuter}) {
      for (size_t op = 0; op < core::kNumCommOps; ++op) {
        const auto &of_plan = planned[static_cast<size_t>(group)][op], &of_ranks = seen[static_cast<size_t>(group)][op];
        EXPECT_EQ(of_ranks.calls, of_plan.calls) << layout::group_name(group) << " op " << op;
        // Padding is not sent to experts, but where all tokens are.
        if (multiple == 1 || group == layout::Group::kEpOuter) {
          EXPECT_EQ(of_ranks.payload_bytes, of_plan.payload_bytes) << layout::group_name(group) << " op " << op;
        }
        calls += of_plan.calls;
      }
    }
    EXPECT_GT(calls, 0);
  }
}

}  // namespace
}  // namespace ms::train
