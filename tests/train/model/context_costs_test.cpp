// What ranks that share a sequence compute and send in core attention, and what must change no bit of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/layout/adaptive_plan.h"
#include "tests/reference/attention.h"
#include "tests/train/model/context_ways.h"

namespace ms::train {
namespace {

using core::Tensor;
using layout::ContextAlgorithm;
using ops::array;
using reference::Array;

// Of each rank out, dq, dk and dv, and the bytes that its ring has sent, in bf16.
struct Result {
  std::vector<Array> values;
  std::vector<int64_t> sent;
};
Result result_of(const Way& way, const Case& of) {
  const auto ranks = static_cast<size_t>(way.size);
  Result result{std::vector<Array>(ranks), std::vector<int64_t>(ranks)};
  test::run_thread_ranks(way.size, [&](core::Endpoint& endpoint) {
    core::ThreadPool pool(1);
    core::Arena arena;
    ops::Context ops{pool, arena};
    Groups groups(endpoint, way);
    const Inputs in(ops, core::DType::kBf16, of);
    const layout::SequenceShare share = share_of(way, of, groups.all.rank());
    const int64_t rows = kSeq / way.size;
    const auto attention = make(way, ops, groups, of);
    CoreAttentionActivations saved;
    const SequenceContext sequence = context_of(of, share);
    attention->forward(
        {rows_of(ops, in.q, share, rows), rows_of(ops, in.k, share, rows), rows_of(ops, in.v, share, rows)}, saved,
        sequence);
    const auto number = static_cast<size_t>(endpoint.rank());
    Array& own = result.values[number];
    own = array(saved.out);
    const ops::QkvGradients seen = attention->backward(rows_of(ops, in.dout, share, rows), saved, sequence);
    for (const Tensor* x : {&seen.dq, &seen.dk, &seen.dv}) {
      const Array more = array(*x);
      own.insert(own.end(), more.begin(), more.end());
    }
    for (const core::Communicator* ring : {&groups.ring, &groups.window})
      result.sent[number] += ring->counter(core::CommOp::kSend).payload_bytes;
  });
  return result;
}

// Of each rank, the FLOPs of a forward and a backward.
std::vector<int64_t> flops_of(const Way& way, const Case& of) {
  std::vector<int64_t> flops(static_cast<size_t>(way.size));
  test::run_thread_ranks(way.size, [&](core::Endpoint& endpoint) {
    core::ThreadPool pool(1);
    core::Arena arena;
    ops::Context ops{pool, arena};
    Groups groups(endpoint, way);
    const Inputs in(ops, core::DType::kFp32, of);
    const int64_t rows = kSeq / way.size;
    const layout::SequenceShare share = share_of(way, of, groups.all.rank());
    const SequenceContext sequence = context_of(of, share);
    const auto attention = make(way, ops, groups, of);
    CoreAttentionActivations saved;
    ops.flops = 0;
    attention->forward(
        {rows_of(ops, in.q, share, rows), rows_of(ops, in.k, share, rows), rows_of(ops, in.v, share, rows)}, saved,
        sequence);
    attention->backward(rows_of(ops, in.dout, share, rows), saved, sequence);
    flops[static_cast<size_t>(endpoint.rank())] = ops.flops;
  });
  return flops;
}

// What the plan says goes in forward, and twice as much in backward.
TEST(AdaptiveAttention, SendsWhatThePlanSays) {
  for (const size_t number : {size_t{1}, size_t{7}, size_t{8}, kPrefixCase, kGridCase, kGeneralGridCase}) {
    const Case& of = kCases[number];
    const Way way{ContextAlgorithm::kAdaptive, 8};
    const auto plan = share_of(way, of, 0).plan();
    const Result seen = result_of(way, of);
    const int64_t block = kSeq / 8 * kBatch * of.groups * (of.d + of.value_d) * 2;
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(seen.sent[static_cast<size_t>(rank)], block * (2 * plan->sent_by(rank) + plan->received_by(rank)))
          << of.name << ", rank " << rank;
    }
    if (number == 8) {
      EXPECT_LT(plan->transfers(), 28) << "documents leave blocks out";
    }
    if (number == kPrefixCase) {
      EXPECT_EQ(plan->transfers(), 28 + 3) << "the three ranks that have 17 positions see each other";
    }
    if (number == kGridCase) {
      EXPECT_EQ(plan->transfers(), 0) << "a block for each rank";
    }
    if (number == kGeneralGridCase) {
      EXPECT_EQ(plan->transfers(), 8) << "a block for each two ranks";
    }
  }
}

// Ranks compute the scores of documents, windows and grids and no others, each of them once.
TEST(ContextAttention, OfWhatIsSeenAsManyFlopsAsOneRankTakes) {
  const auto sum_of = [](const Way& way, const Case& of) {
    const std::vector<int64_t> flops = flops_of(way, of);
    return std::accumulate(flops.begin(), flops.end(), int64_t{0});
  };
  for (const Case& of : kCases) {
    if (of.ends.empty() && of.params.window == 0 && of.params.prefix == 0 && !of.grid) continue;
    SCOPED_TRACE(of.name);
    const int64_t of_one = sum_of({ContextAlgorithm::kUlysses, 1}, of);
    EXPECT_GT(of_one, 0);
    for (const Way& way :
         {Way{ContextAlgorithm::kUlysses, 4}, Way{ContextAlgorithm::kKvAllgather, 4}, Way{ContextAlgorithm::kRing, 4},
          Way{ContextAlgorithm::kRing, 8, 1, 2}, Way{ContextAlgorithm::kHybrid, 4, 2},
          Way{ContextAlgorithm::kAdaptive, 8}, Way{ContextAlgorithm::kHybridAdaptive, 8, 2}}) {
      if (can_attend(way, of)) {
        EXPECT_EQ(sum_of(way, of), of_one) << layout::algorithm_name(way.algorithm);
      }
    }
  }
}

// A part from the front and one from the back leave all ranks as many scores of a causal mask; parts in order do not.
TEST(ContextAttention, ZigZagRanksComputeAsMuch) {
  const auto largest_share = [](const Way& way) {  // of the mean
    const std::vector<int64_t> flops = flops_of(way, kCases[1]);
    const auto sum = static_cast<double>(std::accumulate(flops.begin(), flops.end(), int64_t{0}));
    return static_cast<double>(*std::ranges::max_element(flops)) * way.size / sum;
  };
  for (const Way& way :
       {Way{ContextAlgorithm::kRing, 2}, Way{ContextAlgorithm::kRing, 8}, Way{ContextAlgorithm::kRing, 8, 1, 4},
        Way{ContextAlgorithm::kHybrid, 8, 2}, Way{ContextAlgorithm::kKvAllgather, 8}}) {
    EXPECT_LT(largest_share(way), 1.01) << way.size << " ranks: " << layout::algorithm_name(way.algorithm);
  }
  EXPECT_GT(largest_share({ContextAlgorithm::kAdaptive, 8}), 1.5) << "the test can fail";
}

// Blocks that arrive before the products of another have the same bits as those beside them.
TEST(RingAttention, TravellingBesideProductsChangesNoBit) {
  for (const int window : {1, 2}) {
    const Way beside{ContextAlgorithm::kRing, 4, 1, window}, before{ContextAlgorithm::kRing, 4, 1, window, false};
    EXPECT_EQ(result_of(beside, kCases[1]).values, result_of(before, kCases[1]).values) << "windows of " << window;
  }
}

// A backward that finds what its forward has kept computes the same bits, and sends gradients alone.
TEST(RingAttention, CachedBlocksChangeNoBitAndDoNotTravelAgain) {
  using enum layout::KvCachePolicy;
  for (Way way : {Way{ContextAlgorithm::kRing, 4}, Way{ContextAlgorithm::kRing, 6, 1, 3},
                  Way{ContextAlgorithm::kRing, 8, 1, 2, false}, Way{ContextAlgorithm::kHybrid, 8, 2},
                  Way{ContextAlgorithm::kHybrid, 8, 2, 2}}) {
    for (const size_t number : {size_t{1}, size_t{4}, size_t{7}, size_t{11}, size_t{13}, size_t{15}}) {
      const Case& of = kCases[number];
      SCOPED_TRACE(core::cat(of.name, ", ", way.size, " ranks, windows of ", way.window));
      const Result plain = result_of(way, of);
      const int degree = way.ulysses_degree, hops = way.size / degree - 1;
      const int64_t heads = of.groups * layout::key_copies(of.groups, degree) / degree;
      const int64_t keys = hops * (kSeq * degree / way.size) * kBatch * heads * of.d * 2,
                    values = keys * of.value_d / of.d;
      EXPECT_EQ(plain.sent, std::vector<int64_t>(static_cast<size_t>(way.size), 3 * (keys + values)));
      for (const auto& [policy, sent] : {std::pair{kHalf, 2 * keys + 3 * values}, {kFull, 2 * (keys + values)}}) {
        way.cache = policy;
        const Result cached = result_of(way, of);
        EXPECT_EQ(cached.values, plain.values);
        EXPECT_EQ(cached.sent, std::vector<int64_t>(static_cast<size_t>(way.size), sent));
      }
      way.cache = kNone;
    }
  }
}

// Bytes on the wire are those of the heads that are needed, and no more.
TEST(UlyssesAttention, SendsEachHeadAsOftenAsItMust) {
  for (const auto& [groups, sent] : {std::pair{8, 8}, {4, 4}, {2, 4}, {1, 4}}) {
    test::run_thread_ranks(4, [&, groups = groups, sent = sent](core::Endpoint& endpoint) {
      core::ThreadPool pool(1);
      core::Arena arena;
      ops::Context ops{pool, arena};
      const Way way{ContextAlgorithm::kUlysses, 4};
      Groups communicators(endpoint, way);
      core::Communicator& ranks = communicators.heads;
      const Case of{"", groups, 8, 8};
      const Inputs in(ops, core::DType::kFp32, of);
      const layout::SequenceShare share(ContextAlgorithm::kUlysses, kSeq, 4, ranks.rank());
      const auto attention = make(way, ops, communicators, of);
      CoreAttentionActivations saved;
      attention->forward({rows_of(ops, in.q, share, kSeq / 4), rows_of(ops, in.k, share, kSeq / 4),
                          rows_of(ops, in.v, share, kSeq / 4)},
                         saved, {.share = share});
      const core::CommCounter& counter = ranks.counter(core::CommOp::kAlltoall);
      const int64_t of_head = kSeq / 4 * kBatch * 8 * 4;
      EXPECT_EQ(counter.calls, 4);
      EXPECT_EQ(counter.payload_bytes, of_head * (2 * kHeads + 2 * sent));
    });
  }
}

}  // namespace
}  // namespace ms::train
