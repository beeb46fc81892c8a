// Messages of a layer with experts on several ranks, worked out by hand; tests/train/plan_test.cpp compares with runs.
#include "core/layout/formulas/expert_traffic.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/layout/formulas/communication.h"
#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

using Messages = std::vector<std::string>;

// 2 x 16 tokens of hidden 24 in fp32, each for 2 of 4 experts: 64 rows of 96 bytes.
TrainingStep step_of(const ModelLayout& layout) {
  TrainingStep step{.model = test::small_model(64), .layout = layout, .micro_batch_size = 2, .seq_length = 16};
  step.model.num_experts = 4;
  step.model.moe_router_topk = 2;
  return step;
}

// "alltoall ep 6144", in their order.
Messages messages(const TrainingStep& step, void (*add)(const TrainingStep&, const AddTraffic&)) {
  Messages sent;
  add(step, [&](Group group, core::CommOp op, int64_t bytes) {
    sent.push_back(core::cat(core::comm_op_name(op), " ", group_name(group), " ", bytes));
  });
  return sent;
}

TEST(ExpertTraffic, OneRankHasAllExpertsAndSendsNothing) {
  const TrainingStep step = step_of({.data_parallel_size = 2});
  EXPECT_TRUE(messages(step, add_expert_forward).empty());
  EXPECT_TRUE(messages(step, add_expert_backward).empty());
}

// Forward 2 h bytes a row; backward the same and the gradient of each probability, there and back.
TEST(ExpertTraffic, RowsTravelToTheirExpertsAndBack) {
  const TrainingStep step = step_of({.data_parallel_size = 2, .expert_model_parallel_size = 2});
  EXPECT_EQ(messages(step, add_dispatch), (Messages{"allgather ep 64", "alltoall ep 6144"}));
  EXPECT_EQ(messages(step, add_expert_forward), (Messages{"allgather ep 64", "alltoall ep 6144", "alltoall ep 6144"}));
  EXPECT_EQ(messages(step, add_expert_backward),
            (Messages{"alltoall ep 6144", "alltoall ep 6144", "alltoall ep 256", "alltoall ep 256"}));
}

// Every rank has the tokens of all: their states once each way, and k experts and k weights of each.
TEST(ExpertTraffic, GatheredTokensGoToAllRanks) {
  TrainingStep step = step_of({.data_parallel_size = 2, .expert_model_parallel_size = 2});
  step.gathers_tokens = true;
  EXPECT_EQ(messages(step, add_expert_forward),
            (Messages{"allgather ep 512", "allgather ep 512", "allgather ep 6144", "reduce_scatter ep 6144"}));
  EXPECT_EQ(messages(step, add_expert_backward),
            (Messages{"allgather ep 6144", "reduce_scatter ep 6144", "reduce_scatter ep 512"}));
}

// Ranks that share an expert gather each other's rows, and each adds its part of the result.
TEST(ExpertTraffic, RanksThatShareAnExpertGatherItsRows) {
  TrainingStep step = step_of({.tensor_model_parallel_size = 2, .expert_tensor_parallel_size = 2});
  step.sequence_parallel = true;
  const Messages sent = messages(step, add_expert_forward);
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[1], "allgather tp 6144") << "32 rows of each";
  EXPECT_EQ(sent[2], "reduce_scatter tp 6144");
}

// Groups of experts have exchanges of their own, of as many rows in all.
TEST(ExpertTraffic, GroupsOfExpertsHaveExchangesOfTheirOwn) {
  TrainingStep step = step_of({.data_parallel_size = 2, .expert_model_parallel_size = 2});
  step.expert_groups = 2;
  EXPECT_EQ(messages(step, add_dispatch),
            (Messages{"allgather ep 64", "alltoall ep 3072", "allgather ep 64", "alltoall ep 3072"}));
  EXPECT_EQ(messages(step, add_combine), (Messages{"alltoall ep 3072", "alltoall ep 3072"}));
  const Messages backward = {"alltoall ep 3072", "alltoall ep 3072", "alltoall ep 128", "alltoall ep 128"};
  Messages twice = backward;
  twice.insert(twice.end(), backward.begin(), backward.end());
  EXPECT_EQ(messages(step, add_expert_backward), twice);
}

// Two blocks of two ranks, each with half of the sequence: 16 tokens of each are gathered, and rows go to the experts
// within the block. A token that has three experts in the other block goes there once, not three times.
TEST(ExpertTraffic, BlocksGetEachTokenOnce) {
  TrainingStep step = step_of({.tensor_model_parallel_size = 2,
                               .data_parallel_size = 2,
                               .expert_model_parallel_size = 4,
                               .expert_tensor_parallel_size = 1});
  step.sequence_parallel = step.exchanges_hierarchically = true;
  step.model.num_experts = 12;
  step.model.moe_router_topk = 6;
  const Messages choices = {"allgather ep_outer 768", "allgather ep_outer 768"};  // 2 x 16 x 6 numbers
  Messages forward = choices;
  forward.insert(forward.end(), {"allgather ep_outer 3072", "allgather tp 192", "alltoall tp 9216"});
  EXPECT_EQ(messages(step, add_dispatch), forward);
  forward.insert(forward.end(), {"alltoall tp 9216", "reduce_scatter ep_outer 3072"});
  EXPECT_EQ(messages(step, add_expert_forward), forward);
  EXPECT_EQ(messages(step, add_dispatch_again), (Messages{"allgather ep_outer 3072", "alltoall tp 9216"}));
  EXPECT_EQ(messages(step, add_expert_backward),
            (Messages{"allgather ep_outer 3072", "reduce_scatter ep_outer 3072", "reduce_scatter ep_outer 768",
                      "alltoall tp 9216", "alltoall tp 9216", "alltoall tp 384", "alltoall tp 384"}));
  const auto between_nodes = [&](Group group) {
    int64_t bytes = 0;
    for (const Traffic& traffic : step_traffic(step, 0, /*ranks_per_node=*/2))
      bytes += traffic.group == group ? traffic.remote_bytes : 0;
    return bytes;
  };
  constexpr int64_t kLayers = 2, kHidden = 16 * 96, kNumbers = 16 * 6 * 4;
  EXPECT_EQ(between_nodes(Group::kEpOuter), kLayers * (4 * kHidden + 3 * kNumbers));
  EXPECT_EQ(between_nodes(Group::kTp) + between_nodes(Group::kEp), 0);
  step.exchanges_hierarchically = false;
  const int64_t counts = 12 * int64_t{sizeof(int64_t)};  // a node sends those of its ranks once
  EXPECT_EQ(between_nodes(Group::kEp), kLayers * (4 * 3 * kHidden + 2 * kNumbers / 2 + counts));
}

TEST(ExpertTraffic, BalanceLossesSumTheirCountsOverTensorParallelRanks) {
  TrainingStep step = step_of({.tensor_model_parallel_size = 2, .expert_tensor_parallel_size = 2});
  step.sequence_parallel = step.has_balance_losses = true;
  EXPECT_EQ(messages(step, add_expert_backward).front(), "allreduce tp 64") << "2 sequences x 4 experts x 8 bytes";
}

}  // namespace
}  // namespace ms::layout
