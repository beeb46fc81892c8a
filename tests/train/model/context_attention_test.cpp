// Core attention of ranks that share a sequence, alone, against attention of the whole sequence in float64: out and the
// gradients of q, k and v, for each algorithm. What they compute and send: context_costs_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <vector>

#include "core/layout/adaptive_plan.h"
#include "kernels/dropout.h"
#include "tests/reference/attention.h"
#include "tests/train/model/context_ways.h"

namespace ms::train {
namespace {

using layout::ContextAlgorithm;
using ops::array;
using reference::Array;

// The first position of the document of a position; ends: empty if it is the sample.
int64_t begin_of_document(const std::vector<int64_t>& ends, int64_t batch, size_t position) {
  const auto end = std::ranges::upper_bound(ends, batch * kSeq + static_cast<int64_t>(position));
  return end == ends.begin() ? 0 : std::max<int64_t>(0, *(end - 1) - batch * kSeq);
}

Array head_of(const core::TensorView& x, int64_t batch, int64_t head) {
  const Array all = array(x);
  Array result;
  for (int64_t s = 0; s < x.dim(0); ++s) {
    const auto at = all.begin() + ((s * x.dim(1) + batch) * x.dim(2) + head) * x.dim(3);
    result.insert(result.end(), at, at + x.dim(3));
  }
  return result;
}

// Of whole sequences, [seq, batch, heads, d] each.
struct Expected {
  Array out, dq, dk, dv;
};
Expected expected(const Inputs& in, const Case& of) {
  Expected want{Array(static_cast<size_t>(in.dout.size())), Array(static_cast<size_t>(in.q.size())),
                Array(static_cast<size_t>(in.k.size())), Array(static_cast<size_t>(in.v.size()))};
  for (int64_t batch = 0; batch < kBatch; ++batch) {
    const auto document = [&](size_t position) {
      return std::ranges::upper_bound(of.ends, batch * kSeq + static_cast<int64_t>(position)) - of.ends.begin();
    };
    reference::AttentionParams params{
        .scale = of.params.scale, .softcap = of.params.softcap, .sees = [&](size_t i, size_t j) {
          if (of.grid) return of.grid->sees(static_cast<int64_t>(i), static_cast<int64_t>(j));
          const auto window = static_cast<size_t>(of.params.window);
          const auto prefix = static_cast<size_t>(of.params.prefix);
          return (j <= i || j < prefix) && (window == 0 || j + window > i) && document(i) == document(j);
        }};
    const auto of_head = [&](int64_t head) {
      if (!of.params.alibi_slopes.empty()) {
        params.bias = [slope = of.params.alibi_slopes[static_cast<size_t>(head)]](size_t i, size_t j) {
          return -slope * (static_cast<double>(i) - static_cast<double>(j));
        };
      }
      kernels::Dropout dropout = of.params.dropout;
      if (dropout.probability == 0) return params;
      dropout.key += kernels::kHeadDropoutKeyStep * static_cast<uint64_t>(head);
      params.dropout = [&of, dropout, batch](size_t i, size_t j) {
        const int64_t column = static_cast<int64_t>(j) - begin_of_document(of.ends, batch, i);
        float factors[4];
        kernels::dropout_factors(dropout, kSamples[static_cast<size_t>(batch)], static_cast<int64_t>(i), column / 4 * 4,
                                 4, factors);
        return static_cast<double>(factors[column % 4]);
      };
      return params;
    };
    const auto add = [&](Array& to, const Array& from, int64_t heads, int64_t head, int64_t d) {
      for (size_t i = 0; i < from.size(); ++i) {
        const auto s = static_cast<int64_t>(i) / d, e = static_cast<int64_t>(i) % d;
        to[static_cast<size_t>(((s * kBatch + batch) * heads + head) * d + e)] += from[i];
      }
    };
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t group = head / (kHeads / of.groups);
      const Array q = head_of(in.q, batch, head), k = head_of(in.k, batch, group), v = head_of(in.v, batch, group);
      add(want.out, reference::attention(q, k, v, of.d, of_head(head)).out, kHeads, head, of.value_d);
      const auto gradients = reference::attention_backward(head_of(in.dout, batch, head), q, k, v, of.d, of_head(head));
      add(want.dq, gradients.dq, kHeads, head, of.d);
      add(want.dk, gradients.dk, of.groups, group, of.d);
      add(want.dv, gradients.dv, of.groups, group, of.value_d);
    }
  }
  return want;
}

void expect_rows(const core::TensorView& seen, const Array& whole, const layout::SequenceShare& share, double tolerance,
                 const char* what) {
  const Array got = array(seen);
  const int64_t width = seen.size() / seen.dim(0);
  share.for_each_run(0, seen.dim(0), [&](int64_t row, int64_t position, int64_t count) {
    for (int64_t i = 0; i < count * width; ++i) {
      ASSERT_NEAR(got[static_cast<size_t>(row * width + i)], whole[static_cast<size_t>(position * width + i)],
                  tolerance)
          << what << ", position " << position + i / width;
    }
  });
}

void check(const Way& way, core::DType dtype, const Case& of, double tolerance) {
  SCOPED_TRACE(core::cat(of.name, ", ", way.size, " ranks, ", way.ulysses_degree, " neighbours, windows of ",
                         way.window, ", ", core::dtype_name(dtype)));
  test::run_thread_ranks(way.size, [&](core::Endpoint& endpoint) {
    core::ThreadPool pool(1);
    core::Arena arena;
    ops::Context ops{pool, arena};
    Groups groups(endpoint, way);
    const Inputs in(ops, dtype, of);
    const Expected want = expected(in, of);
    const layout::SequenceShare share = share_of(way, of, groups.all.rank());
    const int64_t rows = kSeq / way.size;
    const SequenceContext sequence = context_of(of, share);
    const auto attention = make(way, ops, groups, of);
    CoreAttentionActivations saved;
    attention->forward(
        {rows_of(ops, in.q, share, rows), rows_of(ops, in.k, share, rows), rows_of(ops, in.v, share, rows)}, saved,
        sequence);
    expect_rows(saved.out, want.out, share, tolerance, "out");
    const ops::QkvGradients seen = attention->backward(rows_of(ops, in.dout, share, rows), saved, sequence);
    EXPECT_FALSE(saved.q.defined() || saved.k.defined() || saved.v.defined() || saved.out.defined() ||
                 saved.whole_out.defined() || saved.lse.defined());
    expect_rows(seen.dq, want.dq, share, 4 * tolerance, "dq");
    expect_rows(seen.dk, want.dk, share, 16 * tolerance, "dk");
    expect_rows(seen.dv, want.dv, share, 16 * tolerance, "dv");
  });
}

// ways: in bf16 the one of 4 ranks.
void check_all(std::initializer_list<Way> ways) {
  for (const Case& of : kCases) {
    for (const Way& way : ways) {
      if (!can_attend(way, of)) continue;
      check(way, core::DType::kFp32, of, 1e-6);
      if (way.size == 4) check(way, core::DType::kBf16, of, 0x1p-7);
    }
  }
}
void check_all(ContextAlgorithm algorithm) { check_all({{algorithm, 2}, {algorithm, 4}, {algorithm, 8}}); }

TEST(UlyssesAttention, IsAttentionOfTheWholeSequence) { check_all(ContextAlgorithm::kUlysses); }
// Of ranks with a part from the front and one from the back.
TEST(UlyssesAttention, AmongLayersOfOthersIsAttentionOfTheWholeSequence) {
  Way ways[] = {{ContextAlgorithm::kUlysses, 2}, {ContextAlgorithm::kUlysses, 4}, {ContextAlgorithm::kUlysses, 8}};
  for (Way& way : ways) way.is_among_others = true;
  check_all({ways[0], ways[1], ways[2]});
}
TEST(RingAttention, IsAttentionOfTheWholeSequence) { check_all(ContextAlgorithm::kRing); }
TEST(KvGatherAttention, IsAttentionOfTheWholeSequence) { check_all(ContextAlgorithm::kKvAllgather); }

TEST(RingAttention, WindowsChangeNoResult) {
  constexpr ContextAlgorithm kRing = ContextAlgorithm::kRing;
  check_all({{kRing, 4, 1, 2}, {kRing, 6, 1, 3}, {kRing, 8, 1, 2}, {kRing, 8, 1, 4}, {kRing, 8, 1, 4, false}});
}

TEST(HybridAttention, IsAttentionOfTheWholeSequence) {
  constexpr ContextAlgorithm kHybrid = ContextAlgorithm::kHybrid;
  check_all({{kHybrid, 4, 2}, {kHybrid, 8, 2}, {kHybrid, 8, 4}, {kHybrid, 8, 2, 2}, {kHybrid, 8, 2, 2, false}});
}

TEST(AdaptiveAttention, IsAttentionOfTheWholeSequence) {
  constexpr ContextAlgorithm kAdaptive = ContextAlgorithm::kAdaptive, kHybrid = ContextAlgorithm::kHybridAdaptive;
  check_all({{kAdaptive, 2}, {kAdaptive, 4}, {kAdaptive, 8}, {kHybrid, 4, 2}, {kHybrid, 8, 2}, {kHybrid, 8, 4}});
}

// Positions of a rank that do not follow one another, with documents and without.
std::shared_ptr<const layout::AdaptivePlan> scattered_plan(int ranks) {
  auto plan = std::make_shared<layout::AdaptivePlan>();
  plan->seq_length = kSeq;
  plan->segments.resize(static_cast<size_t>(ranks));
  for (int64_t first = 0, turn = 0; first < kSeq; first += 3, ++turn) {
    const int64_t lap = turn / ranks, rank = (turn % ranks + lap * (lap + 1) / 2) % ranks;
    plan->segments[static_cast<size_t>(rank)].push_back({first, 3});
  }
  for (int distance = 1; distance < ranks; ++distance) {
    auto& round = plan->rounds.emplace_back();
    for (int rank = 0; rank < ranks; ++rank) round.push_back({rank, (rank + distance) % ranks});
  }
  return plan;
}

TEST(AdaptiveAttention, OfScatteredPositionsIsThatOfTheWholeSequence) {
  Way ways[] = {{ContextAlgorithm::kAdaptive, 4}, {ContextAlgorithm::kHybridAdaptive, 8, 2}};
  for (Way& way : ways) {
    way.plan = scattered_plan(way.size / way.ulysses_degree);
    for (const Case& of : kCases) {
      if (can_attend(way, of)) check(way, core::DType::kFp32, of, 1e-6);
    }
    check(way, core::DType::kBf16, kCases[8], 0x1p-7);
  }
}

// The one head of keys that all ranks need is gathered, not copied for each of them.
TEST(UlyssesAttention, GathersKeysOfOneHead) {
  for (const size_t number : {size_t{3}, size_t{9}}) {
    const Case& of = kCases[number];
    ASSERT_EQ(of.groups, 1);
    for (Way way : {Way{ContextAlgorithm::kUlysses, 2}, Way{ContextAlgorithm::kUlysses, 8},
                    Way{ContextAlgorithm::kHybrid, 8, 2}, Way{ContextAlgorithm::kHybrid, 8, 4}}) {
      way.gathers_keys = true;
      check(way, core::DType::kFp32, of, 1e-6);
      way.is_among_others = true;
      check(way, core::DType::kFp32, of, 1e-6);
    }
  }
}

}  // namespace
}  // namespace ms::train
