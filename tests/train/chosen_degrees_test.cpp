// --hybrid-context-parallel with samples of their own lengths: each micro-batch has as many ranks as it needs. Loss and
// gradients are those of one rank, and ranks exchange what the deal says.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>

#include "core/layout/formulas/memory.h"
#include "core/layout/formulas/rounds.h"
#include "tests/support/log_normal_documents.h"
#include "tests/support/own_length_documents.h"
#include "tests/support/thread_comm.h"
#include "tests/train/model/rank.h"
#include "train/data/degree_deal.h"
#include "train/loop/group_counters.h"
#include "train/loop/step.h"
#include "train/plan.h"

namespace ms::train {
namespace {

using test::TinyLayout;

constexpr int64_t kSeq = 64;

struct StepOutcome {
  double loss = 0;
  std::map<std::string, std::vector<float>> gradients;  // added up over all ranks
  std::vector<GroupCounters> communication;             // of each rank
  std::vector<int> degrees;                             // of each round
  std::vector<int64_t> seqs;                            // of rank 0's micro-batches, whole sequences
};

TrainerConfig config_of(const std::filesystem::path& folder, const TinyLayout& layout, int64_t samples) {
  TrainerConfig config = test::tiny_config(folder, layout);
  config.training.seq_length = kSeq;
  config.training.global_batch_size = samples;
  config.training.calculate_per_token_loss = true;
  config.parallel.variable_seq_lengths = true;
  if (layout.cp == 1) return config;
  config.parallel.hybrid_context_parallel = true;
  config.parallel.max_seqlen_per_dp_cp_rank = kSeq / layout.cp;
  return config;
}

// A step of the documents, dealt by degrees; on one rank in their order.
StepOutcome step_of(const TinyLayout& layout, const test::OwnLengthDocuments& documents,
                    const test::ConfigChange& change = {}) {
  StepOutcome outcome;
  outcome.communication.resize(static_cast<size_t>(layout.ranks()));
  std::mutex mutex;
  const test::TemporaryFolder folder;
  TrainerConfig config = config_of(folder.path(), layout, documents.size());
  if (change) change(config);
  test::run_thread_ranks(layout.ranks(), [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    GptStage stage(*rank.state, *rank.parameters);
    StepRunner runner(*rank.state, stage);
    rank.parameters->initialize(5, [](const Parameter&, const core::TensorView&) {});
    rank.parameters->zero_grads();
    const ModelParallelConfig& parallel = rank.config.parallel;
    const DegreeSettings settings{.dp = layout.dp,
                                  .cp = layout.cp,
                                  .max_rows = parallel.max_seqlen_per_dp_cp_rank.value_or(kSeq),
                                  .micro_batch_size = rank.config.training.micro_batch_size};
    const std::vector<double> costs(documents.lengths().begin(), documents.lengths().end());
    const DegreeDeal deal = deal_by_degree(documents.lengths(), costs, settings);
    std::vector<Microbatch> batch;
    const auto at = rank.groups->at;
    choose_samples(deal, settings, 0, at.dp * layout.cp + at.cp, batch);
    for (size_t m = 0; m < batch.size(); ++m) {
      read_microbatch(documents, {}, 257, batch[m], multiple_of_degree(parallel, deal.degrees[m]));
      if (endpoint.rank() == 0) outcome.seqs.push_back(batch[m].seq);
      take_rows(share_of_degree(parallel, batch[m].seq, deal.degrees[m], at.cp), batch[m]);
    }
    reset_counters(*rank.groups);
    const double loss = runner.train(batch, 1).loss;
    const GroupCounters counters = read_counters(*rank.groups);
    const std::lock_guard lock(mutex);
    outcome.communication[static_cast<size_t>(endpoint.rank())] = counters;
    test::add_gradients(*rank.parameters, outcome.gradients);
    if (endpoint.rank() != 0) return;
    outcome.loss = loss;
    outcome.degrees = deal.degrees;
  });
  return outcome;
}

const std::vector<int64_t> kLengths = {5, 64, 17, 1, 33, 8, 60, 2, 30, 16, 15, 31, 14, 3, 9, 40, 12, 7, 11, 6};

TEST(ChosenDegrees, GiveLossAndGradientsOfOneRank) {
  const test::OwnLengthDocuments documents(kSeq, kLengths);
  const StepOutcome one = step_of({}, documents);
  for (const TinyLayout& layout : {TinyLayout{.cp = 2, .context = "p2p"},
                                   {.cp = 4, .context = "p2p"},
                                   {.dp = 2, .cp = 4, .context = "p2p"},
                                   {.cp = 4, .context = "p2p full"},
                                   {.cp = 4, .context = "a2a"},
                                   {.dp = 2, .cp = 2, .context = "a2a"},
                                   {.cp = 4, .context = "all_gather"},
                                   {.cp = 4, .context = "a2a,p2p,all_gather"}}) {
    SCOPED_TRACE(layout.name());
    const StepOutcome seen = step_of(layout, documents);
    EXPECT_NEAR(seen.loss, one.loss, 1e-5 * one.loss);
    EXPECT_LT(test::largest_distance(seen.gradients, one.gradients), 1e-5);
    EXPECT_EQ(std::ranges::count(seen.degrees, 1) > 0, true);
    EXPECT_EQ(std::ranges::count(seen.degrees, layout.cp) > 0, true);
  }
}

TEST(ChosenDegrees, GoWithOtherFeatures) {
  const test::OwnLengthDocuments documents(kSeq, kLengths);
  std::vector<test::ConfigChange> changes = test::changes_beside_own_lengths();
  changes.emplace_back([](TrainerConfig& config) { config.model.softmax_type = "learnable"; });
  changes.emplace_back(
      [](TrainerConfig& config) { config.model.hidden_dropout = config.model.attention_dropout = 0.2; });
  changes.emplace_back([](TrainerConfig& config) {
    test::use_latent_attention(config);
    config.training.recompute_mla_up_proj = true;
  });
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    const StepOutcome one = step_of({}, documents, changes[i]);
    for (const char* context : {"p2p", "a2a", "all_gather", "a2a,p2p"}) {
      SCOPED_TRACE(context);
      const StepOutcome seen = step_of({.cp = 4, .context = context}, documents, changes[i]);
      EXPECT_NEAR(seen.loss, one.loss, 1e-5 * one.loss);
      EXPECT_LT(test::largest_distance(seen.gradients, one.gradients), 2e-5);
    }
  }
}

// Of each rank, in every group of neighbours: the sum over the micro-batches of the formulas of their degrees and
// lengths.
TEST(ChosenDegrees, ExchangeWhatThePlanOfTheirLengthsSays) {
  const test::OwnLengthDocuments documents(kSeq, kLengths);
  for (const TinyLayout& layout : {TinyLayout{.cp = 4, .context = "p2p"},
                                   {.cp = 4, .context = "p2p half"},
                                   {.dp = 2, .cp = 4, .context = "a2a"},
                                   {.cp = 4, .context = "all_gather"},
                                   {.cp = 8, .context = "p2p"},
                                   {.cp = 4, .context = "p2p,a2a,all_gather half"},
                                   {.tp = 2, .pp = 2, .sp = true, .cp = 2, .context = "p2p"}}) {
    SCOPED_TRACE(layout.name());
    const test::TemporaryFolder folder;
    TrainerConfig config = config_of(folder.path(), layout, documents.size());
    config.model.vocab_size = 257;
    config.training.train_iters = 1;
    config.resolve_and_validate(layout.ranks());
    const layout::TrainingStep step = config.training_step(layout.ranks());
    const StepOutcome seen = step_of(layout, documents);
    GroupCounters planned{};
    for (size_t m = 0; m < seen.seqs.size(); ++m) {
      for (const layout::Traffic& of : layout::round_traffic(step, seen.degrees[m], seen.seqs[m], /*stage=*/0)) {
        core::CommCounter& counter = planned[static_cast<size_t>(of.group)][static_cast<size_t>(of.op)];
        counter.calls += of.calls;
        counter.payload_bytes += of.payload_bytes;
      }
    }
    for (int degree = 2; degree <= layout.cp; degree *= 2) {
      const layout::Group group = layout::group_of_degree(step.grid(), degree);
      int64_t calls = 0;
      for (size_t op = 0; op < core::kNumCommOps; ++op) {
        const auto& of_plan = planned[static_cast<size_t>(group)][op];
        const auto& of_rank = seen.communication[0][static_cast<size_t>(group)][op];
        EXPECT_EQ(of_rank.calls, of_plan.calls) << layout::group_name(group) << " op " << op;
        EXPECT_EQ(of_rank.payload_bytes, of_plan.payload_bytes) << layout::group_name(group) << " op " << op;
        calls += of_plan.calls;
      }
      EXPECT_GT(calls, 0) << layout::group_name(group);
    }
  }
}

class ChosenDegreesOfRuns : public testing::Test {
 protected:
  TrainerConfig config(const TinyLayout& layout) {
    const std::string prefix = (folder_.path() / "documents").string();
    if (!std::filesystem::exists(idx_path(prefix)))
      test::write_documents(prefix, test::log_normal_lengths(200, 20, 1, 3));
    TrainerConfig config = config_of(folder_.path(), layout, 32);
    config.data.data_path = {prefix};
    config.training.train_iters = 4;
    return config;
  }

  test::TemporaryFolder folder_;
};

TEST_F(ChosenDegreesOfRuns, ChangeOnlyTheRoundingOfTheLossInEveryLayout) {
  const auto run = [&](const TinyLayout& layout, const std::string& save, const test::ConfigChange& change = {}) {
    TrainerConfig changed = config(layout);
    if (change) change(changed);
    return test::outcome_of(changed, layout.ranks(), folder_ / save);
  };
  const test::Outcome one = run({}, "one");
  const TinyLayout layouts[] = {{.cp = 4, .context = "p2p"},
                                {.dp = 2, .zero = 1, .cp = 2, .context = "p2p"},
                                {.dp = 2, .zero = 3, .cp = 2, .context = "a2a"},
                                {.dp = 2, .zero = 2, .cp = 2, .context = "all_gather"},
                                {.tp = 2, .sp = true, .cp = 4, .context = "p2p"},
                                {.pp = 2, .zero = 1, .cp = 4, .context = "p2p"},
                                {.pp = 2, .schedule = "zb-h1", .cp = 4, .context = "a2a"},
                                {.tp = 2, .pp = 2, .sp = true, .cp = 2, .context = "p2p"}};
  for (const TinyLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    const test::Outcome seen = run(layout, layout.name());
    for (size_t i = 0; i < one.summary.steps.size(); ++i) {
      const StepMetrics &a = seen.summary.steps[i], &b = one.summary.steps[i];
      EXPECT_NEAR(a.loss, b.loss, 1e-5 * b.loss) << "step " << i + 1;
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-4 * b.grad_norm) << "step " << i + 1;
      EXPECT_EQ(a.tokens, b.tokens);
      ASSERT_TRUE(a.dealt);
      EXPECT_GT(a.dealt->rounds[0], 0);
    }
    EXPECT_LT(test::largest_distance(seen.weights, one.weights), 1e-4);
  }
}

TEST_F(ChosenDegreesOfRuns, EvaluateAsOneRank) {
  const auto evaluated = [&](const TinyLayout& layout) {
    TrainerConfig changed = config(layout);
    changed.training.train_iters = 1;
    changed.training.eval_iters = 1;
    changed.training.eval_interval = 1;
    changed.data.split = "60,40,0";
    return test::run_on_threads(changed, layout.ranks()).validation_loss;
  };
  const double loss = evaluated({});
  EXPECT_GT(loss, 0);
  for (const TinyLayout& layout : {TinyLayout{.cp = 4, .context = "p2p"}, {.dp = 2, .cp = 2, .context = "a2a"}}) {
    SCOPED_TRACE(layout.name());
    EXPECT_NEAR(evaluated(layout), loss, 1e-5 * loss);
  }
}

// FLOPs that 4 ranks have executed, and the model FLOPs that the log line has.
TEST_F(ChosenDegreesOfRuns, BringTheSlowestOf4RanksWithinATenthOfTheMean) {
  for (const TinyLayout& layout : {TinyLayout{.cp = 4, .context = "p2p"}, {.dp = 2, .cp = 2, .context = "p2p"}}) {
    SCOPED_TRACE(layout.name());
    const std::vector<RunSummary> ranks = test::run_all_on_threads(config(layout), 4);
    for (size_t step = 0; step < ranks[0].steps.size(); ++step) {
      SCOPED_TRACE(step);
      double all = 0, most = 0;
      for (const RunSummary& rank : ranks) {
        const auto flops = static_cast<double>(rank.steps[step].executed_flops);
        all += flops;
        most = std::max(most, flops);
      }
      EXPECT_LT(most * 4 / all, 1.1);
      EXPECT_LT(ranks[0].steps[step].dealt->slowest, 1.1);
      EXPECT_NEAR(ranks[0].steps[step].dealt->slowest, most * 4 / all, 0.05);  // padding is not the model's
    }
  }
}

// A rank has up to --max-seqlen-per-dp-cp-rank tokens, above --seq-length / CP: of short samples all, of the longest
// half. Activations reach what the plan says on some rank, and pass it on none.
TEST_F(ChosenDegreesOfRuns, HoldNoMoreThanThePlanSays) {
  // The longest of one rank, of two, and of all; a mixture of them.
  const std::vector<std::vector<int64_t>> kinds = {{32}, {64}, {32, 64}, {3, 64, 32, 9, 31, 40}};
  struct Case {
    TinyLayout layout;
    int64_t most;
    void (*change)(TrainerConfig&);
  };
  const auto plain = [](TrainerConfig&) {};
  const auto again = [](TrainerConfig& c) {
    c.training.recompute_granularity = "full";
    c.training.recompute_method = "uniform";
    c.training.recompute_num_layers = 1;
  };
  const auto swaps = [](TrainerConfig& c) {
    c.training.swap_attention = true;
    c.training.swap_min_tensor_kib = 0;
  };
  const Case cases[] = {{{.cp = 4, .context = "p2p"}, 32, plain},
                        {{.cp = 4, .context = "a2a"}, 32, plain},
                        {{.cp = 4, .context = "all_gather"}, 32, plain},
                        {{.cp = 4, .context = "p2p full"}, 32, again},
                        {{.dp = 2, .zero = 1, .cp = 2, .context = "p2p"}, 64, plain},
                        {{.cp = 4, .context = "p2p"}, 32, swaps},
                        {{.pp = 2, .cp = 2, .context = "p2p"}, 64, plain},
                        {{.pp = 2, .cp = 2, .context = "all_gather"}, 40, plain},
                        {{.tp = 2, .sp = true, .cp = 2, .context = "a2a"}, 64, plain}};
  for (const Case& one : cases) {
    SCOPED_TRACE(core::cat(one.layout.name(), ", ", one.most));
    TrainerConfig run = config(one.layout);
    run.training.train_iters = 1;
    run.parallel.shared_memory = false;
    run.parallel.max_seqlen_per_dp_cp_rank = one.most;
    one.change(run);
    TrainerConfig resolved = run;
    resolved.model.vocab_size = 257;
    resolved.resolve_and_validate(one.layout.ranks());
    const layout::TrainingStep step = resolved.training_step(one.layout.ranks());
    std::vector<double> most(static_cast<size_t>(one.layout.pp));  // of each stage, as a part of the plan's
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      SCOPED_TRACE(kind);
      std::vector<int64_t> lengths;
      for (int i = 0; i < 40; ++i) lengths.push_back(1 + kinds[kind][static_cast<size_t>(i) % kinds[kind].size()]);
      const std::string prefix = folder_ / core::cat("kind", kind);
      if (!std::filesystem::exists(idx_path(prefix))) test::write_documents(prefix, lengths);
      run.data.data_path = {prefix};
      const std::vector<RunSummary> ranks = test::run_all_on_threads(run, one.layout.ranks());
      for (int rank = 0; rank < one.layout.ranks(); ++rank) {
        const layout::StepMemory planned = layout::step_memory(step, rank);
        const StepMetrics& seen = ranks[static_cast<size_t>(rank)].steps.back();
        const auto peak = [&](core::MemoryTag tag) { return seen.peak_bytes[static_cast<size_t>(tag)]; };
        EXPECT_LE(peak(core::MemoryTag::kAct), planned.act) << "rank " << rank;
        EXPECT_LE(peak(core::MemoryTag::kComm), planned.comm) << "rank " << rank;
        EXPECT_LE(seen.tier ? seen.tier->peak_bytes : 0, planned.tier) << "rank " << rank;
        double& of_stage = most[static_cast<size_t>(step.grid().coordinates(rank).pp)];
        of_stage =
            std::max(of_stage, static_cast<double>(peak(core::MemoryTag::kAct)) / static_cast<double>(planned.act));
      }
    }
    for (const double part : most) EXPECT_GT(part, 0.9);
  }
}

TEST_F(ChosenDegreesOfRuns, ArePlanned) {
  TrainerConfig run = config({.dp = 2, .cp = 4, .context = "p2p"});
  run.model.vocab_size = 257;
  run.resolve_and_validate(8);
  const RunPlan plan(run.training_step(8), active_features(run), {});
  const std::string text = plan.text();
  EXPECT_NE(text.find("micro-batches of as many ranks as their longest sample needs, with 16 tokens on a rank at most\n"
                      "  32 samples in a step, in rounds of all 8 ranks (CP 4 x DP 2)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("cp_2       [0,1] [2,3] [4,5] [6,7]"), std::string::npos) << text;
  const nlohmann::json degrees = plan.json()["dealing"]["degrees"];
  ASSERT_EQ(degrees.size(), 3U);
  EXPECT_EQ(degrees[0]["longest"], 16);
  EXPECT_EQ(degrees[0]["calls"], 0);
  EXPECT_EQ(degrees[1]["group"], "cp_2");
  EXPECT_EQ(degrees[1]["shortest"], 17);
  EXPECT_EQ(degrees[2]["longest"], 64);
  // A ring of 2: keys and values once forward, twice backward, sent and received, in 4 layers.
  EXPECT_EQ(degrees[1]["calls"], 4 * 3 * 2 * 2);
  // Of 16 tokens, 4 groups of 8 in fp32.
  EXPECT_EQ(degrees[1]["bytes"], 4 * 3 * 2 * 2 * 16 * 4 * 8 * 4);
  EXPECT_EQ(degrees[2]["calls"], 3 * 4 * 3 * 2 * 2);
  run.parallel.max_seqlen_per_dp_cp_rank = 32;  // two ranks hold the longest sample
  const nlohmann::json none = RunPlan(run.training_step(8), active_features(run), {}).json()["dealing"]["degrees"][2];
  EXPECT_TRUE(none["shortest"].is_null() && none["longest"].is_null()) << none;
}

}  // namespace
}  // namespace ms::train
