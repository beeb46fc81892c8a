// Calls and bytes worked out by hand; tests/train/plan_test.cpp compares the formulas with runs.
#include "core/layout/formulas/communication.h"

#include <gtest/gtest.h>

#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

using core::CommOp;

// 2 layers of hidden 24, 3 micro-batches of 2 x 16 tokens, fp32: a hidden state has 3072 bytes.
TrainingStep step_of(const ModelLayout& layout) {
  return {
      .model = test::small_model(64), .layout = layout, .micro_batch_size = 2, .seq_length = 16, .num_microbatches = 3};
}
constexpr int64_t kHidden = 2 * 16 * 24 * 4, kRows = 2 * 16 * 4;

Traffic of(const std::vector<Traffic>& traffic, Group group, CommOp op) {
  for (const Traffic& t : traffic) {
    if (t.group == group && t.op == op) return t;
  }
  return {group, op};
}

TEST(StepTraffic, OneRankIsSilent) { EXPECT_TRUE(step_traffic(step_of({}), 0).empty()); }

// Megatron's f and g: an all-reduce behind attention and MLP in forward and backward, one behind the embedding and one
// in the output layer's backward; three of a number for each token in the loss; the gradients of the norms of heads.
TEST(StepTraffic, TensorParallelism) {
  const auto traffic = step_traffic(step_of({.tensor_model_parallel_size = 2}), 0);
  const Traffic tp = of(traffic, Group::kTp, CommOp::kAllreduce);
  EXPECT_EQ(tp.calls, 3 * (2 * 4 + 2 + 3) + 1);
  EXPECT_EQ(tp.payload_bytes, 3 * (10 * kHidden + 3 * kRows) + 4 * 2 * 12);
  EXPECT_EQ(tp.ring_bytes, tp.payload_bytes) << "2 (n - 1) / n of it";
  EXPECT_EQ(of(traffic, Group::kTp, CommOp::kAllgather).calls, 0);
}

// Two nodes of two ranks, filled in Megatron's order: TP is inside a node, replicas and stages are not.
TEST(StepTraffic, BetweenNodes) {
  for (const bool distributed : {false, true}) {
    const TrainingStep step =
        step_of({.tensor_model_parallel_size = 2, .data_parallel_size = 2, .zero_stage = distributed ? 1 : 0});
    for (const Traffic& traffic : step_traffic(step, 0, 2)) {
      const bool crosses = traffic.group == Group::kDpCp;
      if (!crosses || traffic.op == CommOp::kAllreduce) {
        EXPECT_EQ(traffic.remote_bytes, crosses ? traffic.ring_bytes : 0);
      }
    }
    int64_t exchanged[2] = {0, 0}, remote[2] = {0, 0};
    for (const int rank : {0, 2}) {
      for (const Traffic& traffic : step_traffic(step, rank, 2)) {
        exchanged[rank / 2] += traffic.group == Group::kDpCp ? traffic.ring_bytes : 0;
        remote[rank / 2] += traffic.remote_bytes;
      }
    }
    EXPECT_GT(remote[0], 0);
    EXPECT_EQ(remote[0] + remote[1], exchanged[0] + exchanged[1]);
  }
  // Four replicas on two nodes: each exchanges half of the gradients with one of the other node. Of small sums two of
  // the three others of each are on the other node.
  const TrainingStep replicas = step_of({.data_parallel_size = 4});
  const Traffic sums = of(step_traffic(replicas, 1, 2), Group::kDpCp, CommOp::kAllreduce);
  const int64_t small = 3 * sizeof(double);
  EXPECT_EQ(sums.calls, 2);
  EXPECT_EQ(sums.remote_bytes, (sums.payload_bytes - small) / 2 + 2 * 3 * small / 4 * 2 / 3);
  EXPECT_EQ(of(step_traffic(replicas, 1, 4), Group::kDpCp, CommOp::kAllreduce).remote_bytes, 0);
  const TrainingStep stages = step_of({.pipeline_model_parallel_size = 2, .data_parallel_size = 2});
  EXPECT_EQ(of(step_traffic(stages, 0, 2), Group::kPp, CommOp::kSend).remote_bytes, 3 * kHidden);
  EXPECT_EQ(of(step_traffic(stages, 0, 4), Group::kPp, CommOp::kSend).remote_bytes, 0);
}

// One hidden state forward and one gradient back for each micro-batch.
TEST(StepTraffic, Pipeline) {
  for (const int rank : {0, 1}) {
    const auto traffic = step_traffic(step_of({.pipeline_model_parallel_size = 2}), rank);
    for (const CommOp op : {CommOp::kSend, CommOp::kRecv}) {
      EXPECT_EQ(of(traffic, Group::kPp, op).calls, 3);
      EXPECT_EQ(of(traffic, Group::kPp, op).payload_bytes, 3 * kHidden);
    }
  }
}

TEST(StepTraffic, DataParallelism) {
  TrainingStep step = step_of({.data_parallel_size = 4});
  const int64_t gradients = 4 * stage_parameters(step, 0).buffer_elems;
  EXPECT_EQ(of(step_traffic(step, 0), Group::kDpCp, CommOp::kAllreduce).payload_bytes, gradients + 3 * 8);
  step.layout.zero_stage = 1;
  const auto traffic = step_traffic(step, 0);
  const StageParameters stage = stage_parameters(step, 0);
  const auto units = static_cast<int64_t>(stage.cut.units().size());
  for (const CommOp op : {CommOp::kReduceScatter, CommOp::kAllgather}) {  // gradients, and the weights, in fp32
    EXPECT_EQ(of(traffic, Group::kDpCp, op).payload_bytes, 4 * stage.buffer_elems);
    EXPECT_EQ(of(traffic, Group::kDpCp, op).ring_bytes, 3 * stage.buffer_elems);
    EXPECT_EQ(of(traffic, Group::kDpCp, op).calls, units) << "a message for each";
  }
  EXPECT_EQ(units, 1 + step.model.num_layers + 1);
}

// Three micro-batches: embedding, two layers, the output; of each rank's message a quarter stays.
TEST(StepTraffic, ZeroTwoReducesEachUnitAfterEachMicrobatch) {
  TrainingStep step = step_of({.data_parallel_size = 4, .zero_stage = 2});
  const int64_t gradients = 4 * stage_parameters(step, 0).buffer_elems;
  const auto traffic = step_traffic(step, 0);
  const Traffic reductions = of(traffic, Group::kDpCp, CommOp::kReduceScatter);
  EXPECT_EQ(reductions.calls, 3 * 4);
  EXPECT_EQ(reductions.payload_bytes, 3 * gradients);
  EXPECT_EQ(reductions.ring_bytes, 3 * gradients * 3 / 4);
  const Traffic gathers = of(traffic, Group::kDpCp, CommOp::kAllgather);
  EXPECT_EQ(gathers.calls, 4) << "of new weights, once a step";
  EXPECT_EQ(gathers.payload_bytes, gradients);
}

// Of three micro-batches: the embedding for each, layers and output twice; nothing behind the update.
TEST(StepTraffic, ZeroThreeGathersEachUnitThatIsRead) {
  TrainingStep step = step_of({.data_parallel_size = 4, .zero_stage = 3});
  const StageParameters stage = stage_parameters(step, 0);
  const FlatRange words = stage.cut.units()[0].range;
  const Traffic gathers = of(step_traffic(step, 0), Group::kDpCp, CommOp::kAllgather);
  EXPECT_EQ(gathers.calls, 3 + 3 * 2 * 3);
  EXPECT_EQ(gathers.payload_bytes, 4 * 3 * (2 * stage.buffer_elems - (words.end - words.begin)));
  EXPECT_EQ(gathers.ring_bytes, gathers.payload_bytes * 3 / 4);
}

}  // namespace
}  // namespace ms::layout
