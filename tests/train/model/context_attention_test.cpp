// Core attention of ranks that share a sequence, alone, against attention of the whole sequence in float64: out and the
// gradients of q, k and v, for each algorithm.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/layout/adaptive_plan.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "tests/reference/attention.h"
#include "tests/support/mask_grids.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/model/rank.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/model/adaptive_attention.h"
#include "train/model/kv_gather_attention.h"
#include "train/model/ring_attention.h"
#include "train/model/ulysses_attention.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

using core::Tensor;
using layout::ContextAlgorithm;
using ops::array;
using reference::Array;

constexpr int64_t kSeq = 48, kBatch = 2, kHeads = 8;

struct Case {
  const char* name;
  int64_t groups, d, value_d;
  ops::AttentionParams params = {};
  std::vector<int64_t> ends = {};  // of documents
  std::shared_ptr<const layout::MaskGrid> grid = nullptr;
};
// A third of all cells, and those on the diagonal.
std::shared_ptr<const layout::MaskGrid> random_grid(int64_t cells, bool is_causal) {
  return test::make_grid(kSeq, cells, is_causal, test::random_cells(cells, 33, 5));
}

const Case kCases[] = {
    {"as many keys as queries", 8, 8, 8, {.scale = 0.4}},
    {"grouped queries", 4, 8, 8, {.scale = 0.4}},
    {"fewer groups than ranks", 2, 8, 8, {.scale = 0.4}},
    {"one group", 1, 8, 8, {.scale = 0.4}},
    {"values of another size", 8, 12, 6, {.scale = 0.4}},
    {"soft cap", 4, 8, 8, {.scale = 1, .softcap = 2}},
    {"window and soft cap", 4, 8, 8, {.scale = 1, .softcap = 2, .window = 11}},
    {"documents", 4, 8, 8, {.scale = 0.4}, {5, 30, kSeq, kSeq + 1, 2 * kSeq}},
    {"short documents", 4, 8, 8, {.scale = 0.4}, {3, 7, 8, 16, 24, 25, 40, 44, kSeq, kSeq + 24, 2 * kSeq}},
    {"documents and soft cap", 1, 8, 6, {.scale = 1, .softcap = 2}, {47, kSeq, kSeq + 20, 2 * kSeq - 1, 2 * kSeq}},
    {"documents and window", 4, 8, 8, {.scale = 0.4, .window = 11}, {30, kSeq, kSeq + 13, 2 * kSeq}},
    {"window of few keys", 4, 8, 8, {.scale = 0.4, .window = 2}},
    {"ALiBi", 4, 8, 8, {.scale = 0.4, .alibi_slopes = ops::alibi_slopes(kHeads)}},
    {"documents, ALiBi and window",
     4,
     8,
     6,
     {.scale = 0.4, .window = 13, .alibi_slopes = ops::alibi_slopes(kHeads)},
     {21, kSeq, kSeq + 3, 2 * kSeq}},
    {"dropout", 2, 8, 8, {.scale = 0.4, .dropout = {0.3F, 77}}},
    {"documents, dropout and window",
     4,
     8,
     8,
     {.scale = 0.4, .window = 17, .dropout = {0.3F, 77}},
     {5, 30, kSeq, kSeq + 1, 2 * kSeq}},
    {"prefix", 4, 8, 8, {.scale = 0.4, .prefix = 17}},
    {"prefix of most keys and soft cap", 8, 12, 6, {.scale = 1, .softcap = 2, .prefix = 37}},
    {"prefix and dropout", 2, 8, 8, {.scale = 0.4, .prefix = 30, .dropout = {0.3F, 77}}},
    {"grid of blocks", 4, 8, 8, {.scale = 0.4}, {}, test::make_grid(kSeq, 16, true, test::block_cells(2))},
    {"general grid of blocks", 1, 8, 8, {.scale = 0.4}, {}, test::make_grid(kSeq, 24, false, test::block_cells(6))},
    {"grid and soft cap", 8, 12, 6, {.scale = 1, .softcap = 2}, {}, random_grid(8, true)},
    {"general grid and dropout", 2, 8, 8, {.scale = 0.4, .dropout = {0.3F, 77}}, {}, random_grid(12, false)},
    {"grid, ALiBi and dropout",
     4,
     8,
     6,
     {.scale = 0.4, .dropout = {0.3F, 77}, .alibi_slopes = ops::alibi_slopes(kHeads)},
     {},
     random_grid(6, true)},
    {"general grid of positions", 4, 8, 8, {.scale = 0.4}, {}, random_grid(kSeq, false)},
    {"general grid without its diagonal",
     4,
     8,
     8,
     {.scale = 0.4},
     {},
     test::make_grid(kSeq, 8, false, [](int64_t query, int64_t key) { return (query + 3) % 8 == key; })},
};
constexpr size_t kPrefixCase = 16, kGridCase = 19, kGeneralGridCase = 20;
const std::vector<int64_t> kSamples = {3, 14};  // numbers in the run

// The first position of the document of a position; ends: empty if it is the sample.
int64_t begin_of_document(const std::vector<int64_t>& ends, int64_t batch, size_t position) {
  const auto end = std::ranges::upper_bound(ends, batch * kSeq + static_cast<int64_t>(position));
  return end == ends.begin() ? 0 : std::max<int64_t>(0, *(end - 1) - batch * kSeq);
}

// A whole tensor [seq, batch, heads, d], the same on all ranks.
Tensor whole_tensor(ops::Context& ops, core::DType dtype, int64_t heads, int64_t d, uint64_t salt) {
  const core::Dims shape = {kSeq, kBatch, heads, d};
  const auto values = test::RandomValues(salt).make<float>(core::num_elements(shape));
  Tensor fp32(ops.arena, core::DType::kFp32, shape, core::MemoryTag::kTmp);
  std::copy(values.begin(), values.end(), fp32.data<float>());
  return ops::cast(ops, fp32, dtype);
}

Tensor rows_of(ops::Context& ops, const Tensor& whole, const layout::SequenceShare& share, int64_t rows) {
  Tensor own(ops.arena, whole.dtype(), {rows, kBatch, whole.dim(2), whole.dim(3)}, core::MemoryTag::kAct);
  share.for_each_run(0, rows, [&](int64_t row, int64_t position, int64_t count) {
    ops::cast_into(ops, whole.view().rows(position, position + count), own.view().rows(row, row + count));
  });
  return own;
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

struct Inputs {
  Inputs(ops::Context& ops, core::DType dtype, const Case& of)
      : q(whole_tensor(ops, dtype, kHeads, of.d, 1)),
        k(whole_tensor(ops, dtype, of.groups, of.d, 2)),
        v(whole_tensor(ops, dtype, of.groups, of.value_d, 3)),
        dout(whole_tensor(ops, dtype, kHeads, of.value_d, 4)) {}
  Tensor q, k, v, dout;
};

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

// The heads that UlyssesAttention's inner one attends, in plain operators.
class WholeHeads : public CoreAttention {
 public:
  WholeHeads(ops::Context& ops, const ops::AttentionParams& params) : ops_(ops), params_(params) {}
  void forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override {
    saved.q = std::move(qkv.q), saved.k = std::move(qkv.k), saved.v = std::move(qkv.v);
    ops::AttentionResult result =
        ops::causal_attention(ops_, saved.q, saved.k, saved.v, params_of_sequence(params_, sequence));
    saved.out = std::move(result.out), saved.lse = std::move(result.lse);
  }
  ops::QkvGradients backward(Tensor dout, CoreAttentionActivations& saved, const SequenceContext& sequence) override {
    ops::QkvGradients gradients = ops::causal_attention_backward(ops_, dout, saved.q, saved.k, saved.v, saved.out,
                                                                 saved.lse, params_of_sequence(params_, sequence));
    saved = {};
    return gradients;
  }

 private:
  ops::Context& ops_;
  ops::AttentionParams params_;
};

// How so many ranks attend.
struct Way {
  ContextAlgorithm algorithm;
  int size, ulysses_degree = 1, window = 1;
  bool overlaps = true;
  layout::KvCachePolicy cache = layout::KvCachePolicy::kNone;
  bool gathers_keys = false;
  std::shared_ptr<const layout::AdaptivePlan> plan = nullptr;  // null: what the documents give
  bool is_among_others = false;  // kUlysses in a layer among those of other algorithms, which are zig-zag

  bool is_zigzag() const { return is_among_others || layout::is_zigzag(algorithm); }
};

// Adaptive algorithms know no distances.
bool can_attend(const Way& way, const Case& of) {
  const bool by_distance = of.params.window > 0 || !of.params.alibi_slopes.empty() || of.params.dropout.probability > 0;
  return !by_distance || !layout::is_adaptive(way.algorithm);
}

// The groups of a rank.
struct Groups {
  Groups(core::Endpoint& endpoint, const Way& way)
      : parts(context_parts(way.algorithm, way.size, way.ulysses_degree, way.window)),
        grid{.cp = way.size, .cp_window = parts.window, .cp_ring = parts.ring},
        all(open_group(endpoint, grid, layout::Group::kCp)),
        heads(open_group(endpoint, grid, layout::group_of_heads(grid, parts))),
        window(open_group(endpoint, grid, layout::Group::kCpWindow)),
        ring(open_group(endpoint, grid, layout::group_of_ring(grid, parts))) {}

  layout::ContextParts parts;
  layout::RankGrid grid;
  core::Communicator all, heads, window, ring;
};

// What a rank has of the sequences.
layout::SequenceShare share_of(const Way& way, const Case& of, int rank) {
  if (way.is_zigzag()) return {ContextAlgorithm::kRing, kSeq, way.size, rank};
  if (!layout::is_adaptive(way.algorithm)) return {way.algorithm, kSeq, way.size, rank};
  const int ranks = way.size / way.ulysses_degree;
  using enum layout::PositionOrder;
  const auto plan = way.plan  ? way.plan
                    : of.grid ? layout::plan_grid(*of.grid, ranks, kOfClusters)
                              : layout::plan_documents(kSeq, ranks, of.ends, kOfClusters, of.params.prefix);
  return {plan, rank, way.ulysses_degree};
}

SequenceContext context_of(const Case& of, const layout::SequenceShare& share) {
  return {.samples = kSamples, .share = share, .document_ends = of.ends, .grid = of.grid.get()};
}

std::unique_ptr<CoreAttention> make(const Way& way, ops::Context& ops, Groups& groups, const Case& of) {
  if (way.algorithm == ContextAlgorithm::kKvAllgather)
    return std::make_unique<KvGatherAttention>(ops, groups.all, of.params);
  ops::AttentionParams params = of.params;
  if (groups.parts.ulysses > 1) params.first_head = groups.heads.rank() * (kHeads / groups.parts.ulysses);
  std::unique_ptr<CoreAttention> whole = std::make_unique<WholeHeads>(ops, params);
  if (groups.parts.ring > 1) {
    const RingAttention::Options options{
        .window = way.window > 1 ? &groups.window : nullptr, .overlaps = way.overlaps, .cache = way.cache};
    whole = std::make_unique<RingAttention>(ops, groups.ring, params, options);
    if (layout::is_adaptive(way.algorithm)) whole = std::make_unique<AdaptiveAttention>(ops, groups.ring, params);
  }
  if (groups.parts.ulysses == 1) return whole;
  const UlyssesAttention::Options options{
      .order = way.is_zigzag() ? core::BlockOrder::kFrontBack : core::BlockOrder::kByRank,
      .gathers_keys = way.gathers_keys};
  return std::make_unique<UlyssesAttention>(ops, groups.heads, of.groups, std::move(whole), options);
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
