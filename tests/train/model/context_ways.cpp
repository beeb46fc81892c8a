#include "tests/train/model/context_ways.h"

#include <algorithm>
#include <utility>

#include "tests/support/mask_grids.h"
#include "train/model/adaptive_attention.h"
#include "train/model/kv_gather_attention.h"
#include "train/model/ring_attention.h"
#include "train/model/ulysses_attention.h"
#include "train/ops/elementwise.h"

namespace ms::train {

using core::Tensor;
using layout::ContextAlgorithm;

namespace {

// A third of all cells, and those on the diagonal.
std::shared_ptr<const layout::MaskGrid> random_grid(int64_t cells, bool is_causal) {
  return test::make_grid(kSeq, cells, is_causal, test::random_cells(cells, 33, 5));
}

Tensor whole_tensor(ops::Context& ops, core::DType dtype, int64_t heads, int64_t d, uint64_t salt) {
  const core::Dims shape = {kSeq, kBatch, heads, d};
  const auto values = test::RandomValues(salt).make<float>(core::num_elements(shape));
  Tensor fp32(ops.arena, core::DType::kFp32, shape, core::MemoryTag::kTmp);
  std::copy(values.begin(), values.end(), fp32.data<float>());
  return ops::cast(ops, fp32, dtype);
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

}  // namespace

const std::vector<Case> kCases = {
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

bool can_attend(const Way& way, const Case& of) {
  const bool by_distance = of.params.window > 0 || !of.params.alibi_slopes.empty() || of.params.dropout.probability > 0;
  return !by_distance || !layout::is_adaptive(way.algorithm);
}

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

Inputs::Inputs(ops::Context& ops, core::DType dtype, const Case& of)
    : q(whole_tensor(ops, dtype, kHeads, of.d, 1)),
      k(whole_tensor(ops, dtype, of.groups, of.d, 2)),
      v(whole_tensor(ops, dtype, of.groups, of.value_d, 3)),
      dout(whole_tensor(ops, dtype, kHeads, of.value_d, 4)) {}

Tensor rows_of(ops::Context& ops, const Tensor& whole, const layout::SequenceShare& share, int64_t rows) {
  Tensor own(ops.arena, whole.dtype(), {rows, kBatch, whole.dim(2), whole.dim(3)}, core::MemoryTag::kAct);
  share.for_each_run(0, rows, [&](int64_t row, int64_t position, int64_t count) {
    ops::cast_into(ops, whole.view().rows(position, position + count), own.view().rows(row, row + count));
  });
  return own;
}

}  // namespace ms::train
