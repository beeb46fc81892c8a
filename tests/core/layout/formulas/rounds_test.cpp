// Messages of micro-batches that have as many ranks as they need, worked out by hand;
// tests/train/chosen_degrees_test.cpp compares with runs.
#include "core/layout/formulas/rounds.h"

#include <gtest/gtest.h>

#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

using core::CommOp;

// A ring of up to 4 ranks, each with 16 tokens of a sample at most.
TrainingStep step_of_rings() {
  TrainingStep step{.model = test::small_model(64),
                    .layout = {.data_parallel_size = 4, .context_parallel_size = 4},
                    .seq_length = 64,
                    .context_algorithm = ContextAlgorithm::kRing,
                    .max_seqlen_per_dp_cp_rank = 16,
                    .num_microbatches = 8};
  step.context_parts = context_parts(step.context_algorithm, 4, 1, 1);
  return step;
}

TEST(RoundTraffic, OneRankExchangesNothing) { EXPECT_TRUE(round_traffic(step_of_rings(), 1, 16, 0).empty()); }

// Keys and values of 2 groups of 6 in fp32 go to each other rank of the ring forward, again backward, and their
// gradients with them; 2 layers.
TEST(RoundTraffic, RingsPassKeysAndValuesThreeTimes) {
  const TrainingStep step = step_of_rings();
  for (const int degree : {2, 4}) {
    SCOPED_TRACE(degree);
    const int64_t calls = int64_t{2} * 3 * 2 * (degree - 1), block = 32 / degree * 2 * 6 * 4;
    const std::vector<Traffic> traffic = round_traffic(step, degree, 32, 0);
    ASSERT_EQ(traffic.size(), 2U);
    for (const Traffic& of : traffic) {
      EXPECT_EQ(of.group, group_of_degree(step.grid(), degree));
      EXPECT_TRUE(of.op == CommOp::kSend || of.op == CommOp::kRecv);
      EXPECT_EQ(of.calls, calls);
      EXPECT_EQ(of.payload_bytes, calls * block);
    }
  }
}

TEST(Rounds, AStepOfARoundHasOneMicroBatch) {
  const TrainingStep round = step_of_round(step_of_rings(), 2, 32);
  EXPECT_EQ(round.layout.context_parallel_size, 2);
  EXPECT_EQ(round.context_parts.ring, 2);
  EXPECT_EQ(round.seq_length, 32);
  EXPECT_EQ(round.num_microbatches, 1);
  EXPECT_EQ(round.max_seqlen_per_dp_cp_rank, 0);
}

TEST(Rounds, LengthsOfADegreeAreThoseThatNeedIt) {
  TrainingStep step = step_of_rings();
  const auto expect = [&](const std::vector<DegreeLengths>& wanted) {
    const std::vector<DegreeLengths> seen = degree_lengths(step);
    ASSERT_EQ(seen.size(), wanted.size());
    for (size_t i = 0; i < seen.size(); ++i) {
      EXPECT_EQ(seen[i].degree, wanted[i].degree);
      EXPECT_EQ(seen[i].shortest, wanted[i].shortest) << i;
      EXPECT_EQ(seen[i].longest, wanted[i].longest) << i;
      EXPECT_EQ(seen[i].padded, wanted[i].padded) << i;
    }
  };
  expect({{1, 1, 16, 16}, {2, 17, 32, 32}, {4, 33, 64, 64}});
  step.max_seqlen_per_dp_cp_rank = 21;  // a ring of 2 has 4 parts, one of 4 has 8
  expect({{1, 1, 21, 21}, {2, 22, 42, 44}, {4, 43, 64, 64}});
  step.max_seqlen_per_dp_cp_rank = 40;
  expect({{1, 1, 40, 40}, {2, 41, 64, 64}, {4, 65, 64, 64}});  // none needs 4
  step.max_seqlen_per_dp_cp_rank = 0;
  expect({});
}

// Rows that a rank has of the longest sample of each number of ranks; S / CP are 16.
TEST(Rounds, FullestStepsHaveTheMostTokensOfARank) {
  TrainingStep step = step_of_rings();
  const auto rows = [&] {
    std::vector<int64_t> of_steps;
    for (const TrainingStep& fullest : fullest_steps(step)) {
      EXPECT_EQ(fullest.num_microbatches, step.num_microbatches);
      of_steps.push_back(fullest.rows());
    }
    return of_steps;
  };
  EXPECT_EQ(rows(), (std::vector<int64_t>{16, 16, 16}));
  step.max_seqlen_per_dp_cp_rank = 21;
  EXPECT_EQ(rows(), (std::vector<int64_t>{21, 22, 16}));
  step.max_seqlen_per_dp_cp_rank = 100;
  EXPECT_EQ(rows(), (std::vector<int64_t>{64}));
  step.max_seqlen_per_dp_cp_rank = 40;
  EXPECT_EQ(rows(), (std::vector<int64_t>{40, 32}));
  step.layout.pipeline_model_parallel_size = 2;  // beside one of 32 rows others with 40 may be in flight
  EXPECT_EQ(rows(), (std::vector<int64_t>{40, 40}));
  step.max_seqlen_per_dp_cp_rank = 0;
  EXPECT_TRUE(rows().empty());
}

}  // namespace
}  // namespace ms::layout
