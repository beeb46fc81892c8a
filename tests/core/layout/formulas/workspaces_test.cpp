#include "core/layout/formulas/workspaces.h"

#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

constexpr int64_t kSeq = 4096;

TrainingStep step_of(int cp, ContextAlgorithm algorithm) {
  TrainingStep step{.model = test::small_model(64),
                    .seq_length = kSeq,
                    .context_algorithm = algorithm,
                    .context_parts = context_parts(algorithm, cp, 1, 1),
                    .rotary_positions = kSeq / cp};
  step.layout.context_parallel_size = cp;
  return step;
}

// Of one head's gradients.
int64_t bytes_of(const TrainingStep& step, int64_t queries, int64_t keys) {
  return 4 * kernels::attention_backward_workspace({.queries = queries,
                                                    .keys = keys,
                                                    .d = step.model.key_head_dim(),
                                                    .value_d = step.model.value_head_dim()});
}

TEST(RotaryTableBytes, AreACosineAndASineOfEachPair) {
  TrainingStep step = step_of(1, ContextAlgorithm::kUlysses);
  EXPECT_EQ(rotary_table_bytes(step), 2 * kSeq * step.model.rotary_dim() / 2 * 4);
  EXPECT_EQ(rotary_table_bytes(step_of(4, ContextAlgorithm::kRing)), rotary_table_bytes(step) / 4);
  step.model.rotary_base_local = 500;
  EXPECT_EQ(rotary_table_bytes(step), 4 * kSeq * step.model.rotary_dim() / 2 * 4);
  step.model.position_embedding_type = "learned_absolute";
  EXPECT_EQ(rotary_table_bytes(step), 0);
}

TEST(AttentionWorkspaceBytes, AreOfTheKeysThatARankMeetsAtOnce) {
  const TrainingStep one = step_of(1, ContextAlgorithm::kUlysses);
  EXPECT_EQ(attention_workspace_bytes(one, 0), bytes_of(one, kSeq, kSeq));
  EXPECT_EQ(attention_workspace_bytes(step_of(4, ContextAlgorithm::kRing), 0), bytes_of(one, kSeq / 4, kSeq / 4));
  EXPECT_EQ(attention_workspace_bytes(step_of(4, ContextAlgorithm::kKvAllgather), 0), bytes_of(one, kSeq / 4, kSeq));
  EXPECT_EQ(attention_workspace_bytes(step_of(2, ContextAlgorithm::kUlysses), 0), bytes_of(one, kSeq, kSeq));
}

TEST(AttentionWorkspaceBytes, AreOfTheLayerThatNeedsMost) {
  TrainingStep step = step_of(4, ContextAlgorithm::kRing);
  step.context_algorithms = {ContextAlgorithm::kRing, ContextAlgorithm::kKvAllgather};
  step.model.num_layers = 2;
  EXPECT_EQ(attention_workspace_bytes(step, 0), bytes_of(step, kSeq / 4, kSeq));
}

TEST(AttentionWorkspaceBytes, AreOfEachThreadThatHasAGroupOfHeads) {
  TrainingStep step = step_of(1, ContextAlgorithm::kUlysses);
  const int64_t groups = step.model.query_groups();
  step.threads = 2;
  EXPECT_EQ(attention_workspace_bytes(step, 0), std::min<int64_t>(2, groups) * bytes_of(step, kSeq, kSeq));
  step.threads = 64;
  EXPECT_LT(attention_workspace_bytes(step, 0), 64 * bytes_of(step, kSeq, kSeq));
}

TEST(AttentionWorkspaceBytes, OfSamplesOfTheirOwnNumberOfRanksAreOfTheLongestOnOne) {
  TrainingStep step = step_of(4, ContextAlgorithm::kUlysses);
  EXPECT_EQ(attention_workspace_bytes(step, 0), bytes_of(step, kSeq, kSeq));
  step = step_of(4, ContextAlgorithm::kRing);
  step.max_seqlen_per_dp_cp_rank = kSeq / 2;
  EXPECT_EQ(attention_workspace_bytes(step, 0), bytes_of(step, kSeq / 2, kSeq / 2));
}

}  // namespace
}  // namespace ms::layout
