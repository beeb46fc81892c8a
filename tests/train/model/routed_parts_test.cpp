// What the ranks of TP, and those that share sequences, gather of each other's tokens, and which of these are padding.
#include "train/model/routed_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/features/context_parallel.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 16, kBatch = 2;
const std::vector<int64_t> kLengths = {16, 9};

struct Case {
  int tp, cp;
  const char* algorithm;
};
const Case kCases[] = {{1, 1, "ulysses_cp_algo"},  {2, 1, "ulysses_cp_algo"},  {1, 2, "ulysses_cp_algo"},
                       {1, 4, "megatron_cp_algo"}, {2, 2, "megatron_cp_algo"}, {2, 2, "ulysses_cp_algo"}};

// Of a token [position, sample] its number in the micro-batch of one rank.
int64_t token(int64_t position, int64_t sample) { return position * kBatch + sample; }
bool is_padding(int64_t token) { return token / kBatch >= kLengths[static_cast<size_t>(token % kBatch)]; }

void check_parts(Rank& rank) {
  const int tp = rank.state->tp_size(), cp = rank.config.parallel.context_parallel_size;
  const SequenceContext sequence = {.share = sequence_share(rank.config.parallel, kSeq, rank.groups->at.cp),
                                    .lengths = kLengths};
  const int64_t rows = kSeq / cp / tp, first_row = rows * rank.state->tp_rank();
  core::Tensor own(rank.arena, core::DType::kInt64, {rows * kBatch}, core::MemoryTag::kAct);
  sequence.share.for_each_run(first_row, first_row + rows, [&](int64_t row, int64_t position, int64_t count) {
    for (int64_t i = 0; i < count * kBatch; ++i)
      own.data<int64_t>()[(row - first_row) * kBatch + i] = token(position, 0) + i;
  });
  const RoutedParts parts(*rank.state, sequence, rows * kBatch);
  EXPECT_EQ(parts.count(), tp * cp);
  EXPECT_EQ(parts.whole_tokens(), 16 + 9);

  // of_all() has this rank's part where first_token() says.
  const std::vector<uint8_t> own_padding = parts.padding(), all_padding = parts.padding_of_all();
  core::Tensor all = parts.count() > 1 ? parts.of_all(own) : own.share();
  const int64_t* const numbers = all.data<int64_t>();
  ASSERT_EQ(all.dim(0), kSeq * kBatch);
  ASSERT_EQ(all_padding.size(), static_cast<size_t>(kSeq * kBatch));
  ASSERT_EQ(own_padding.size(), static_cast<size_t>(rows * kBatch));
  for (int64_t i = 0; i < kSeq * kBatch; ++i)
    EXPECT_EQ(all_padding[static_cast<size_t>(i)] != 0, is_padding(numbers[i])) << "token " << numbers[i];
  for (int64_t i = 0; i < rows * kBatch; ++i) {
    EXPECT_EQ(numbers[parts.first_token() + i], own.data<int64_t>()[i]);
    EXPECT_EQ(own_padding[static_cast<size_t>(i)] != 0, is_padding(own.data<int64_t>()[i]));
  }

  // by_position() has them as one rank would.
  const core::Tensor ordered = parts.by_position(all.share());
  const std::vector<uint8_t> ordered_padding = parts.padding_by_position();
  ASSERT_EQ(ordered_padding.size(), static_cast<size_t>(kSeq * kBatch));
  for (int64_t i = 0; i < kSeq * kBatch; ++i) {
    EXPECT_EQ(ordered.data<int64_t>()[i], i);
    EXPECT_EQ(ordered_padding[static_cast<size_t>(i)] != 0, is_padding(i));
  }
  int64_t visited = 0;
  parts.for_each_run([&](int64_t of_own, int64_t of_whole, int64_t count) {
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(own.data<int64_t>()[of_own + i], of_whole + i);
    visited += count;
  });
  EXPECT_EQ(visited, rows * kBatch);

  double counts[] = {1, static_cast<double>(rows * kBatch)};
  parts.sum(counts);
  EXPECT_EQ(counts[0], parts.count());
  EXPECT_EQ(counts[1], kSeq * kBatch);
}

TEST(RoutedParts, GatherTheTokensOfAllRanksThatRouteAMicrobatch) {
  const test::TemporaryFolder folder;
  for (const Case& of : kCases) {
    SCOPED_TRACE(core::cat("tp ", of.tp, ", cp ", of.cp, " by ", of.algorithm));
    TrainerConfig config = test::tiny_config(folder.path(), {of.tp});
    config.parallel.context_parallel_size = of.cp;
    config.parallel.context_parallel_algo = of.algorithm;
    config.parallel.sequence_parallel = of.tp > 1;
    test::run_thread_ranks(of.tp * of.cp, [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      check_parts(rank);
    });
  }
}

// Nothing is gathered for masks of padding where no sample has any.
TEST(RoutedParts, MasksAreEmptyWithoutPadding) {
  const test::TemporaryFolder folder;
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, test::tiny_config(folder.path()));
    const std::vector<int64_t> whole(kBatch, kSeq);
    const SequenceContext sequence = {.share = sequence_share(rank.config.parallel, kSeq, 0), .lengths = whole};
    const RoutedParts parts(*rank.state, sequence, kSeq * kBatch);
    EXPECT_TRUE(parts.padding().empty() && parts.padding_of_all().empty() && parts.padding_by_position().empty());
    EXPECT_EQ(parts.whole_tokens(), kSeq * kBatch);
  });
}

}  // namespace
}  // namespace ms::train
