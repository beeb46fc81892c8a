#include "core/layout/training_step.h"

#include <gtest/gtest.h>

#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

TrainingStep step_of(bool tied, int tp, int pp) {
  TrainingStep step{.model = test::small_model(64, tied), .seq_length = 2};
  step.layout = {.tensor_model_parallel_size = tp, .pipeline_model_parallel_size = pp};
  return step;
}

TEST(StageParameters, BufferHasTheStagesParametersEachFrom64On) {
  const StageParameters whole = stage_parameters(step_of(false, 1, 1), 0);
  EXPECT_EQ(whole.embedding_elems, 64 * 24);
  EXPECT_EQ(whole.partial_grad_elems, std::vector<int64_t>{0});
  EXPECT_EQ(whole.tied_row_elems, 0);
  // Embedding and output; per layer: norm of 24, QKV of 48 x 24 with bias, norms of 6 twice, projection, norm, the
  // gated MLP of 40; the final norm.
  const int64_t layer = 64 + 48 * 24 + 64 + 64 + 64 + 24 * 24 + 64 + 80 * 24 + 24 * 40;
  const int64_t all = 2 * 64 * 24 + 2 * layer + 64;
  EXPECT_EQ(whole.buffer_elems, (all + 127) / 128 * 128);
}

TEST(StageParameters, ReplicatedParametersHavePartialGradientsWithSequenceParallelism) {
  TrainingStep step = step_of(false, 2, 1);
  EXPECT_EQ(stage_parameters(step, 0).partial_grad_elems, std::vector<int64_t>{2 * (6 + 6)}) << "the norms of heads";
  step.sequence_parallel = true;
  EXPECT_EQ(stage_parameters(step, 0).partial_grad_elems, std::vector<int64_t>{2 * (24 + 6 + 6 + 24) + 24});
}

TEST(StageParameters, BucketsHavePartialGradientsOfTheirOwn) {
  TrainingStep step = step_of(false, 2, 1);
  step.layout.data_parallel_size = 2;
  step.sequence_parallel = true;
  step.buckets = {.overlapped = true, .bucket_size = 1};
  const StageParameters every = stage_parameters(step, 0);
  EXPECT_EQ(every.buckets.size(), parameter_specs(step.model).size()) << "a bucket for each parameter";
  EXPECT_EQ(every.buckets.front().end, every.buffer_elems);
  EXPECT_EQ(every.buckets.back().begin, 0);
  int64_t sum = 0;
  for (const int64_t partial : every.partial_grad_elems) sum += partial;
  EXPECT_EQ(sum, 2 * (24 + 6 + 6 + 24) + 24);
}

TEST(StageParameters, FrozenOnesHaveABufferOfTheirOwn) {
  TrainingStep step = step_of(false, 1, 1);
  const StageParameters all = stage_parameters(step, 0);
  step.frozen_parameters = {"embedding.word_embeddings.weight"};
  const StageParameters some = stage_parameters(step, 0);
  EXPECT_EQ(some.buffer_elems + some.frozen_elems, all.buffer_elems);
  EXPECT_EQ(some.frozen_elems, 64 * 24);
  EXPECT_EQ(some.embedding_elems, 0);
}

TEST(StageParameters, TiedRowsAreAddedUpApartWhereEmbeddingAndOutputAreOneStage) {
  EXPECT_EQ(stage_parameters(step_of(true, 1, 1), 0).tied_row_elems, 2 * 24) << "the rows of two tokens";
  EXPECT_EQ(stage_parameters(step_of(true, 1, 2), 0).tied_row_elems, 0);
  EXPECT_EQ(stage_parameters(step_of(true, 1, 2), 1).embedding_elems, 64 * 24) << "a replica";
}

}  // namespace
}  // namespace ms::layout
