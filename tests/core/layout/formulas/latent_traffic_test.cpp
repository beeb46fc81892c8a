// Messages of a layer with latent attention, worked out by hand; tests/train/plan_models_test.cpp compares with runs.
#include "core/layout/formulas/latent_traffic.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

using core::CommOp;
using Messages = std::vector<std::pair<CommOp, int64_t>>;

// 2 x 16 tokens in fp32 of vectors of 24 (queries) and 20 elements (keys and values), and of 8 that keys share.
constexpr int64_t kQueries = 2 * 16 * 24 * 4, kKeys = 2 * 16 * 20 * 4, kShared = 2 * 16 * 8 * 4;

TrainingStep step_of(int tp, bool sequence_parallel) {
  TrainingStep step{.model = test::small_model(64),
                    .layout = {.tensor_model_parallel_size = tp},
                    .micro_batch_size = 2,
                    .seq_length = 16,
                    .num_microbatches = 1};
  step.sequence_parallel = sequence_parallel;
  step.model.multi_latent_attention = true;
  step.model.q_lora_rank = 24;
  step.model.kv_lora_rank = 20;
  step.model.qk_pos_emb_head_dim = 8;
  return step;
}

template <class Function, class... More>
Messages messages_of(Function add_messages, const TrainingStep& step, More... more) {
  Messages messages;
  add_messages(step, more..., [&](CommOp op, int64_t bytes) { messages.emplace_back(op, bytes); });
  return messages;
}

// The down projections are whole on each rank: only gradients of what the up projections read are summed.
TEST(LatentTraffic, TensorParallelismSumsGradients) {
  const TrainingStep step = step_of(2, false);
  EXPECT_EQ(messages_of(add_latent_forward, step), Messages());
  EXPECT_EQ(messages_of(add_latent_backward, step, int64_t{0}),
            (Messages{{CommOp::kAllreduce, kQueries}, {CommOp::kAllreduce, kKeys}, {CommOp::kAllreduce, kShared}}));
  EXPECT_EQ(messages_of(add_latent_backward, step_of(1, false), int64_t{0}), Messages());
}

TEST(LatentTraffic, SequenceParallelismGathersVectors) {
  const TrainingStep step = step_of(2, true);
  const Messages gathers = {{CommOp::kAllgather, kQueries}, {CommOp::kAllgather, kKeys}};
  Messages forward = {{CommOp::kAllgather, kShared}}, backward = gathers;
  forward.insert(forward.end(), gathers.begin(), gathers.end());
  for (const int64_t bytes : {kQueries, kKeys, kShared}) backward.emplace_back(CommOp::kReduceScatter, bytes);
  EXPECT_EQ(messages_of(add_latent_forward, step), forward);
  EXPECT_EQ(messages_of(add_latent_recompute, step), gathers);
  EXPECT_EQ(messages_of(add_latent_backward, step, int64_t{0}), backward);
}

TEST(LatentTraffic, WithoutAVectorOfQueriesTheHiddenStateIsGathered) {
  TrainingStep step = step_of(2, true);
  step.model.q_lora_rank = 0;
  EXPECT_EQ(messages_of(add_latent_recompute, step)[0].second, 2 * 16 * step.model.hidden_size * 4);
}

}  // namespace
}  // namespace ms::layout
