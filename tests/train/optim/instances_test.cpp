// Several instances of the distributed optimizer: sums over all replicas, whose parts are within an instance, and whole
// runs against those without.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/optim/optimizer.h"

namespace ms::train {
namespace {

using test::Outcome;
using test::TinyLayout;

struct Row {
  TinyLayout layout;
  int instances = 2;
  const char* change = "";
  bool divides_state = false;
};

TrainerConfig configured(const test::TemporaryFolder& folder, const Row& row) {
  TrainerConfig config = test::tiny_config(folder.path(), row.layout);
  const std::string change = row.change;
  config.parallel.num_distributed_optimizer_instances = row.instances;
  config.training.global_batch_size = 8;
  config.model.untie_embeddings_and_output_weights = change != "tied";
  config.training.bf16 = change == "bf16" || change == "experts in bf16" || change == "reduced in bf16" ||
                         change == "shared master weights";
  config.parallel.grad_reduce_in_bf16 = change == "reduced in bf16";
  config.optimizer.reuse_fp32_param = change == "shared master weights";
  config.logger.log_num_zeros_in_grad = config.logger.log_params_norm = change == "norms and zeros";
  if (row.divides_state) config.parallel.outer_dp_sharding_strategy = "optim";
  if (change == "small parameters whole") config.parallel.parallel_optimizer_threshold = 1;  // norms
  if (change == "whole but for the output layer") config.parallel.parallel_optimizer_threshold = 12;
  if (change.starts_with("experts")) {
    config.model.num_experts = 4;
    config.model.moe_router_topk = 2;
    config.model.moe_ffn_hidden_size = 24;
    config.model.init_method_std = 0.1;  // scores that rounding does not reorder
    config.parallel.expert_model_parallel_size = 2;
    config.parallel.expert_tensor_parallel_size = 1;
  }
  if (change == "frozen parts") config.optimizer.freeze_parameters = "layers.1|linear_qkv|final_layernorm";
  if (row.layout.zero < 3) config.training.check_weight_hash_across_dp_replicas_interval = 1;
  return config;
}

Outcome run(TrainerConfig config, int ranks, const std::string& save, int64_t until = 6, const std::string& load = "") {
  config.training.train_iters = until;
  config.checkpoint.load = load;
  return test::outcome_of(std::move(config), ranks, save);
}

void expect_near(const Outcome& seen, const Outcome& expected, double tolerance) {
  ASSERT_EQ(seen.summary.steps.size(), expected.summary.steps.size());
  for (size_t i = 0; i < seen.summary.steps.size(); ++i) {
    const StepMetrics &a = seen.summary.steps[i], &b = expected.summary.steps[i];
    EXPECT_NEAR(a.loss, b.loss, tolerance * b.loss) << "step " << i + 1;
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 100 * tolerance * b.grad_norm) << "step " << i + 1;
    if (b.params_norm > 0) {
      EXPECT_NEAR(a.params_norm, b.params_norm, tolerance * b.params_norm) << "step " << i + 1;
    }
    if (b.num_zeros >= 0) {
      EXPECT_EQ(a.num_zeros, b.num_zeros) << "step " << i + 1;
    }
  }
  EXPECT_LT(test::largest_distance(seen.weights, expected.weights), 20 * tolerance);
}

void expect_equal(const Outcome& seen, const Outcome& expected) { test::expect_same_bits(seen, expected); }

std::string name_of(const Row& row) {
  std::string name =
      core::cat(row.layout.name(), "_of", row.instances, "_", row.change, row.divides_state ? "_divided" : "");
  std::ranges::replace(name, ' ', '_');
  return name;
}

class Instances : public testing::TestWithParam<Row> {};

TEST_P(Instances, AgreeWithOneInstanceAndOverlapChangesNoBit) {
  const Row& row = GetParam();
  const test::TemporaryFolder folder;
  const int ranks = row.layout.ranks();
  TrainerConfig single = configured(folder, {row.layout, 1, row.change});
  single.parallel.parallel_optimizer_threshold.reset();
  const Outcome one = run(single, ranks, folder / "one");
  const Outcome several = run(configured(folder, row), ranks, folder / "several");
  const bool bf16 = configured(folder, row).training.bf16;
  expect_near(several, one, bf16 ? 2e-3 : 1e-5);
  if (row.layout.zero > 1) return;
  for (const auto& [size, shares_memory] : {std::pair{1, true}, std::pair{30'000, true}, std::pair{1, false}}) {
    SCOPED_TRACE(core::cat("bucket size ", size, shares_memory ? " shared" : ""));
    TrainerConfig config = configured(folder, row);
    config.parallel.overlap_grad_reduce = config.parallel.overlap_param_gather = true;
    config.parallel.ddp_bucket_size = size;
    config.parallel.shared_memory = shares_memory;
    expect_equal(run(config, ranks, folder / core::cat("overlapped", size, shares_memory)), several);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, Instances,
    testing::Values(
        Row{{1, 1, 4, 1}}, Row{{1, 1, 8, 1}}, Row{{1, 1, 8, 1}, 4}, Row{{1, 2, 4, 1}}, Row{{2, 1, 4, 1, true}},
        Row{{1, 1, 4, 2}}, Row{{1, 1, 4, 3}}, Row{{2, 1, 4, 3, true}}, Row{{1, 2, 4, 2}}, Row{{1, 1, 4, 1}, 2, "tied"},
        Row{{1, 2, 4, 1}, 2, "tied"}, Row{{1, 2, 4, 2}, 2, "tied"}, Row{{1, 1, 4, 1}, 2, "bf16"},
        Row{{1, 1, 4, 1}, 2, "reduced in bf16"}, Row{{1, 1, 4, 2}, 2, "reduced in bf16"},
        Row{{1, 1, 4, 1}, 2, "shared master weights"}, Row{{1, 1, 4, 1}, 2, "frozen parts"},
        Row{{1, 1, 4, 3}, 2, "frozen parts"}, Row{{1, 1, 4, 1}, 2, "norms and zeros"},
        Row{{1, 1, 4, 2}, 2, "norms and zeros"}, Row{{1, 1, 4, 1}, 2, "small parameters whole"},
        Row{{2, 1, 4, 2, true}, 2, "small parameters whole"}, Row{{1, 1, 4, 3}, 2, "small parameters whole"},
        Row{{1, 1, 4, 1}, 2, "whole but for the output layer"}, Row{{1, 2, 4, 3}, 2, "whole but for the output layer"},
        Row{{1, 1, 8, 1}, 2, "experts"}, Row{{1, 1, 4, 1}, 2, "experts"}, Row{{1, 1, 4, 3}, 2, "experts"},
        Row{{2, 1, 4, 2, true}, 2, "experts"}, Row{{1, 1, 8, 3}, 2, "experts", true}, Row{{1, 1, 4, 3}, 2, "", true},
        Row{{1, 1, 8, 3}, 4, "", true}, Row{{2, 1, 4, 3, true}, 2, "", true}, Row{{1, 2, 4, 3}, 2, "tied", true},
        Row{{1, 1, 4, 3}, 2, "reduced in bf16", true}, Row{{1, 1, 4, 3}, 2, "shared master weights", true},
        Row{{1, 1, 4, 3}, 2, "frozen parts", true}, Row{{1, 1, 4, 3}, 2, "norms and zeros", true},
        Row{{.dp = 2, .zero = 1, .cp = 2, .context = "a2a"}}, Row{{.dp = 4, .zero = 3, .cp = 2, .context = "p2p"}},
        Row{{.dp = 4, .zero = 3, .cp = 2, .context = "p2p"}, 2, "tied", true},
        Row{{.dp = 2, .zero = 2, .cp = 2, .context = "all_gather"}, 2, "experts"}),
    [](const auto& test) { return name_of(test.param); });

// Gradients that are whole numbers: each rank's have a factor of its own, so that a sum of others is another one.
TEST(Instances, SumOverAllReplicasOnce) {
  for (const auto& [dp, instances] : {std::pair{4, 2}, std::pair{8, 2}, std::pair{8, 4}, std::pair{6, 3}}) {
    SCOPED_TRACE(core::cat(dp, " ranks, ", instances, " instances"));
    const test::TemporaryFolder folder;
    TrainerConfig config = test::tiny_config(folder.path(), {1, 1, dp, 1});
    config.parallel.num_distributed_optimizer_instances = instances;
    config.training.global_batch_size = dp;
    const int size = dp;
    test::run_thread_ranks(dp, [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      const auto gradient = [](int64_t element, int of) { return static_cast<float>((1 + of * of) * (element % 97)); };
      const std::span<float> all = rank.parameters->grads().elements<float>();
      for (size_t i = 0; i < all.size(); ++i) all[i] = gradient(static_cast<int64_t>(i), endpoint.rank());
      Buckets buckets(*rank.state, *rank.parameters);
      buckets.finish_reduction();
      int64_t owned = 0;
      for (const Bucket& bucket : buckets.all()) {
        for (int64_t i = bucket.owned.begin; i < bucket.owned.end; ++i) {
          float sum = 0;
          for (int of = 0; of < size; ++of) sum += gradient(i, of);
          ASSERT_EQ(all[static_cast<size_t>(i)], sum) << i;
        }
        owned += bucket.owned.end - bucket.owned.begin;
      }
      EXPECT_EQ(owned * (size / rank.config.parallel.num_distributed_optimizer_instances),
                rank.parameters->trained_elems());
    });
  }
}

// An instance's ranks are neighbours; what crosses instances is a rank's part alone.
TEST(Instances, SendBetweenInstancesTheirOwnPartOnly) {
  for (const int zero : {1, 2, 3}) {
    const test::TemporaryFolder folder;
    TrainerConfig config = configured(folder, {{1, 1, 4, zero}});
    config.training.train_iters = 1;
    for (const RunSummary& summary : test::run_all_on_threads(config, 4)) {
      const auto bytes = [&](layout::Group group, core::CommOp op) {
        return summary.communication[static_cast<size_t>(group)][static_cast<size_t>(op)].payload_bytes;
      };
      const int64_t across = bytes(layout::Group::kDpReplica, core::CommOp::kAllreduce);
      const int64_t within = bytes(layout::Group::kDpShard, core::CommOp::kReduceScatter);
      EXPECT_GT(across, 0);
      EXPECT_EQ(within, across * 2 * (zero > 1 ? 2 : 1)) << "two micro-batches from ZeRO-2 on";
      EXPECT_EQ(bytes(layout::Group::kDpReplica, core::CommOp::kAllgather), 0);
      EXPECT_EQ(bytes(layout::Group::kDpCp, core::CommOp::kReduceScatter), 0);
    }
  }
}

// With state over the instances, what a rank owns is reduce-scattered and gathered over them, once a step.
TEST(Instances, DivideTheirStateByOneMessageEachWay) {
  const test::TemporaryFolder folder;
  TrainerConfig config = configured(folder, {{1, 1, 4, 3}, 2, "bf16", true});
  config.training.train_iters = 1;
  for (const RunSummary& summary : test::run_all_on_threads(config, 4)) {
    const auto counter = [&](layout::Group group, core::CommOp op) {
      return summary.communication[static_cast<size_t>(group)][static_cast<size_t>(op)];
    };
    const auto reduced = counter(layout::Group::kDpReplica, core::CommOp::kReduceScatter);
    const auto gathered = counter(layout::Group::kDpReplica, core::CommOp::kAllgather);
    EXPECT_EQ(reduced.calls, 1);
    EXPECT_EQ(gathered.calls, 1);
    EXPECT_EQ(reduced.payload_bytes, 2 * gathered.payload_bytes) << "fp32 gradients, bf16 weights";
    EXPECT_EQ(counter(layout::Group::kDpReplica, core::CommOp::kAllreduce).calls, 0);
    EXPECT_EQ(counter(layout::Group::kDpShard, core::CommOp::kReduceScatter).payload_bytes,
              2 * 2 * reduced.payload_bytes)
        << "two micro-batches of all of which a rank owns a half";
  }
}

class InstancesResume : public testing::TestWithParam<std::pair<Row, Row>> {};

TEST_P(InstancesResume, ContinuesTheOthersCheckpoint) {
  const auto& [before, after] = GetParam();
  const test::TemporaryFolder folder;
  const Outcome whole = run(configured(folder, {{}, 1}), 1, folder / "whole", 8);
  run(configured(folder, before), before.layout.ranks(), folder / "parts", 4);
  const Outcome second = run(configured(folder, after), after.layout.ranks(), folder / "second", 8, folder / "parts");
  ASSERT_EQ(second.summary.steps.size(), 4U);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(second.summary.steps[i].loss, whole.summary.steps[4 + i].loss, 1e-5 * whole.summary.steps[4 + i].loss)
        << "step " << i + 5;
  EXPECT_LT(test::largest_distance(second.weights, whole.weights), 2e-4);
}

INSTANTIATE_TEST_SUITE_P(Table, InstancesResume,
                         testing::Values(std::pair{Row{{1, 1, 4, 1}}, Row{{}, 1}},
                                         std::pair{Row{{}, 1}, Row{{1, 1, 4, 1}}},
                                         std::pair{Row{{1, 1, 4, 1}}, Row{{1, 1, 4, 1}, 1}},
                                         std::pair{Row{{1, 1, 4, 1}, 1}, Row{{1, 1, 4, 3}}},
                                         std::pair{Row{{1, 1, 4, 3}}, Row{{2, 1, 2, 1}, 1}},
                                         std::pair{Row{{1, 1, 4, 3}, 2, "", true}, Row{{2, 1, 2, 1}, 1}},
                                         std::pair{Row{{1, 1, 4, 1}, 1}, Row{{1, 1, 8, 3}, 4, "", true}},
                                         std::pair{Row{{1, 1, 4, 3}, 2, "small parameters whole", true},
                                                   Row{{1, 2, 4, 2}, 2, "whole but for the output layer"}},
                                         std::pair{Row{{1, 1, 8, 2}, 4}, Row{{1, 1, 4, 1}, 2}}),
                         [](const auto& test) { return name_of(test.param.first) + "_" + name_of(test.param.second); });

// The state of an optimizer that a stop has cut is the one that it goes on with.
TEST(Instances, SixStepsAreThreeAndThreeBitForBit) {
  for (const int zero : {1, 2, 3, 4}) {
    const test::TemporaryFolder folder;
    const TrainerConfig config = configured(folder, {{1, 1, 4, std::min(3, zero)}, 2, "bf16", zero > 3});
    const Outcome whole = run(config, 4, folder / "whole");
    run(config, 4, folder / "parts", 3);
    const Outcome second = run(config, 4, folder / "parts", 6, folder / "parts");
    ASSERT_EQ(second.summary.steps.size(), 3U);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(second.summary.steps[i].loss, whole.summary.steps[3 + i].loss) << "ZeRO-" << zero;
    EXPECT_EQ(test::largest_distance(second.weights, whole.weights), 0) << "ZeRO-" << zero;
  }
}

}  // namespace
}  // namespace ms::train
