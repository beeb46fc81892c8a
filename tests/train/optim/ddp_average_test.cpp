// --ddp-average-in-collective: the collectives divide by the number of replicas what the loss has not divided.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/optim/bucket.h"

namespace ms::train {
namespace {

using test::Outcome;
using test::TinyLayout;

struct Row {
  TinyLayout layout;
  const char* change = "";  // of the configuration
};

TrainerConfig configured(const test::TemporaryFolder& folder, const Row& row) {
  TrainerConfig config = test::tiny_config(folder.path(), row.layout);
  const std::string change = row.change;
  config.training.global_batch_size = 4 * row.layout.dp;
  config.training.train_iters = 4;
  config.optimizer.optimizer = "sgd";  // AdamW makes steps of the roundoff in gradients that are 0
  config.optimizer.lr = 0.1;
  if (change == "instances") config.parallel.num_distributed_optimizer_instances = 2;
  if (change == "bf16") config.training.bf16 = true;
  if (change == "reduced in bf16") config.training.bf16 = config.parallel.grad_reduce_in_bf16 = true;
  if (change == "overlapped") config.parallel.overlap_grad_reduce = true;
  if (change == "experts") {
    config.model.num_experts = 4;
    config.model.moe_router_topk = 2;
    config.training.moe_aux_loss_coeff = {0.01};
  }
  return config;
}

// Runs without and with the switch.
std::pair<Outcome, Outcome> outcomes(const Row& row) {
  const test::TemporaryFolder folder;
  TrainerConfig config = configured(folder, row);
  Outcome by_loss = test::outcome_of(config, row.layout.ranks(), folder / "loss");
  config.parallel.ddp_average_in_collective = true;
  return {std::move(by_loss), test::outcome_of(config, row.layout.ranks(), folder / "collective")};
}

class DdpAverage : public testing::TestWithParam<Row> {};

TEST_P(DdpAverage, ByAPowerOfTwoChangesNoBit) {
  const auto [by_loss, by_collective] = outcomes(GetParam());
  test::expect_same_bits(by_collective, by_loss);
}

INSTANTIATE_TEST_SUITE_P(Table, DdpAverage,
                         testing::Values(Row{{1, 1, 2}}, Row{{1, 1, 4, 1}, "bf16"}, Row{{1, 1, 2, 2}},
                                         Row{{1, 2, 2, 3}}, Row{{2, 1, 2, 1, true}, "overlapped"},
                                         Row{{1, 1, 4, 1}, "instances"}, Row{{1, 1, 4, 2}, "instances"},
                                         Row{{1, 1, 2, 1}, "reduced in bf16"}, Row{{1, 1, 2, 1}, "experts"},
                                         Row{{.dp = 2, .zero = 1, .cp = 2}}),
                         [](const auto& test) {
                           std::string name = core::cat(test.param.layout.name(), "_", test.param.change);
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

TEST(DdpAverage, ByThreeRoundsElsewhere) {
  const auto [by_loss, by_collective] = outcomes({{1, 1, 3, 1}});
  for (size_t i = 0; i < by_loss.summary.steps.size(); ++i)
    EXPECT_NEAR(by_collective.summary.steps[i].loss, by_loss.summary.steps[i].loss, 1e-5) << "step " << i + 1;
  EXPECT_GT(test::largest_distance(by_collective.weights, by_loss.weights), 0);
  EXPECT_LT(test::largest_distance(by_collective.weights, by_loss.weights), 1e-6);
}

TEST(DdpAverage, IsOfTheReplicasGradients) {
  for (const int zero : {0, 1}) {
    const test::TemporaryFolder folder;
    TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 3, zero});
    config.training.global_batch_size = 3;
    config.parallel.ddp_average_in_collective = true;
    test::run_thread_ranks(3, [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      Buckets buckets(*rank.state, *rank.parameters);
      const std::span<float> grads = rank.parameters->grads().elements<float>();
      std::ranges::fill(grads, 1.0F + static_cast<float>(endpoint.rank()));
      buckets.finish_reduction();
      const layout::BufferCut& cut = rank.parameters->cut();
      for (const layout::BufferCut::Unit& unit : cut.units()) {
        const layout::FlatRange owned = cut.owned_block(unit, endpoint.rank());
        for (int64_t i = owned.begin; i < owned.end; ++i) ASSERT_EQ(grads[static_cast<size_t>(i)], 2) << i;
      }
    });
  }
}

TEST(DdpAverage, RefusesExpertsOfFewerRanks) {
  const test::TemporaryFolder folder;
  TrainerConfig config = configured(folder, {{1, 1, 2}, "experts"});
  config.model.vocab_size = 257;
  config.parallel.ddp_average_in_collective = true;
  EXPECT_NO_THROW(TrainerConfig(config).resolve_and_validate(2));
  config.parallel.expert_model_parallel_size = 2;
  EXPECT_THROW(config.resolve_and_validate(2), core::Error);
}

}  // namespace
}  // namespace ms::train
