#include "train/model/kv_gather_attention.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "train/model/document_ranges.h"
#include "train/ops/elementwise.h"
#include "train/ops/range_attention.h"
#include "train/parallel/sequence_order.h"

namespace ms::train {

using core::Tensor;
using core::TensorView;
namespace {

Tensor positions_like(ops::Context& ops, const TensorView& x, int64_t positions) {
  core::Dims shape = x.shape();
  shape.front() = positions;
  return {ops.arena, x.dtype(), shape, core::MemoryTag::kAct};
}

// What rows of one segment see of the first keys.
struct Seen {
  int64_t keys = 0;  // up to those of their own positions, and a prefix; by a grid that is not causal, all
  std::vector<ops::AttentionRange> ranges;
  layout::RunLists lists = {};  // of a grid, to which ranges refer
};
int64_t keys_seen(const SequenceContext& sequence, int64_t position, int64_t count, int64_t prefix) {
  if (sequence.grid != nullptr && !sequence.grid->is_causal()) return sequence.share.seq_length();
  return std::max(position + count, prefix);
}

std::vector<ops::AttentionRange> ranges_of(const SequenceContext& sequence, int64_t batch, ops::RowSpan rows,
                                           int64_t position, int64_t prefix, int64_t seen) {
  if (sequence.document_ends.empty()) {
    std::vector<ops::AttentionRange> ranges;
    for (int64_t sample = 0; sample < batch; ++sample) {
      ranges.push_back({.sample = sample,
                        .first_row = rows.first,
                        .rows = rows.count,
                        .keys = seen,
                        .distance = position,
                        .position = position,
                        .prefix = prefix});
    }
    return ranges;
  }
  return document_ranges(sequence.document_ends, batch, sequence.share, rows, {}, seen);
}

Seen seen_by(const SequenceContext& sequence, int64_t batch, ops::RowSpan rows, int64_t position, int64_t prefix) {
  Seen seen{.keys = keys_seen(sequence, position, rows.count, prefix), .ranges = {}};
  if (sequence.grid != nullptr) {
    seen.lists = grid_runs(*sequence.grid, sequence.share, {rows.first, rows.count}, {}, seen.keys);
    seen.ranges = ranges_of_lists(seen.lists, batch, rows.count, seen.keys, rows.first);
  } else {
    seen.ranges = ranges_of(sequence, batch, rows, position, prefix, seen.keys);
  }
  return seen;
}

}  // namespace

KvGatherAttention::Keys KvGatherAttention::gather(const TensorView& k, const TensorView& v) {
  const int64_t rows = k.dim(0), seq = rows * ranks_.size();
  Keys gathered{positions_like(ops_, k, seq), positions_like(ops_, v, seq)};
  core::Work k_work = ranks_.iallgather(k, gathered.k), v_work = ranks_.iallgather(v, gathered.v);
  k_work.wait();
  Keys whole;
  whole.k = rows_by_position(ops_, std::move(gathered.k), ranks_.size());
  v_work.wait();
  whole.v = rows_by_position(ops_, std::move(gathered.v), ranks_.size());
  return whole;
}

KvGatherAttention::Keys KvGatherAttention::scatter(Keys whole) {
  const int64_t rows = whole.k.dim(0) / ranks_.size();
  const Tensor k_parts = rows_by_rank(ops_, std::move(whole.k), ranks_.size()),
               v_parts = rows_by_rank(ops_, std::move(whole.v), ranks_.size());
  Keys own{positions_like(ops_, k_parts, rows), positions_like(ops_, v_parts, rows)};
  core::Work k_work = ranks_.ireduce_scatter(k_parts, own.k), v_work = ranks_.ireduce_scatter(v_parts, own.v);
  k_work.wait();
  v_work.wait();
  return own;
}

void KvGatherAttention::forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) {
  saved.q = std::move(qkv.q);
  saved.k = std::move(qkv.k);
  saved.v = std::move(qkv.v);
  const Keys whole = gather(saved.k, saved.v);
  const int64_t rows = saved.q.dim(0), batch = saved.q.dim(1), heads = saved.q.dim(2);
  saved.out = Tensor(ops_.arena, saved.q.dtype(), {rows, batch, heads, saved.v.dim(3)}, core::MemoryTag::kAct);
  saved.lse = Tensor(ops_.arena, core::DType::kFp32, {batch, heads, rows}, core::MemoryTag::kAct);
  const ops::AttentionParams params = params_of_sequence(params_, sequence);
  sequence.share.for_each_run(0, rows, [&](int64_t row, int64_t position, int64_t count) {
    const Seen seen = seen_by(sequence, batch, {row, count}, position, params_.prefix);
    const TensorView k = whole.k.view().rows(0, seen.keys), v = whole.v.view().rows(0, seen.keys);
    ops::range_attention(ops_, saved.q, k, v, {row, count}, seen.ranges, params, saved.out, saved.lse);
  });
}

ops::QkvGradients KvGatherAttention::backward(Tensor dout, CoreAttentionActivations& saved,
                                              const SequenceContext& sequence) {
  Keys whole = gather(saved.k, saved.v);
  const int64_t seq = whole.k.dim(0), rows = saved.q.dim(0);
  Tensor dq = positions_like(ops_, saved.q, rows);
  Keys dwhole{positions_like(ops_, whole.k, seq), positions_like(ops_, whole.v, seq)};
  const ops::AttentionParams params = params_of_sequence(params_, sequence);
  const auto block = [&](int64_t row, int64_t position, int64_t count, const Keys& gradients) {
    const Seen seen = seen_by(sequence, saved.q.dim(1), {row, count}, position, params_.prefix);
    const auto first = [&](const Tensor& x) { return x.view().rows(0, seen.keys); };
    ops::range_attention_backward(ops_, dout, saved.q, first(whole.k), first(whole.v), saved.out, saved.lse,
                                  {row, count}, seen.ranges, params, {dq, first(gradients.k), first(gradients.v)});
  };
  const std::span<const layout::Segment> segments = sequence.share.segments();
  MS_CHECK(segments.size() == 2, "a share of ", segments.size(), " segments");
  const layout::Segment front = segments[0], back = segments[1];
  block(front.count, back.first, back.count, dwhole);  // sees the keys that the front does
  for (Tensor* x : {&dwhole.k, &dwhole.v}) {
    const int64_t seen = keys_seen(sequence, back.first, back.count, params_.prefix);
    if (seen < seq) ops::fill_zero(ops_, x->view().rows(seen, seq));
  }
  {
    const int64_t seen = keys_seen(sequence, front.first, front.count, params_.prefix);
    const int64_t room = std::max(seen, seq / 2);
    const Keys of_front{positions_like(ops_, whole.k, room), positions_like(ops_, whole.v, room)};
    block(0, front.first, front.count, of_front);
    ops::add_inplace(ops_, dwhole.k.view().rows(0, seen), of_front.k.view().rows(0, seen));
    ops::add_inplace(ops_, dwhole.v.view().rows(0, seen), of_front.v.view().rows(0, seen));
  }
  whole = {};
  dout.reset();
  saved = {};
  Keys own = scatter(std::move(dwhole));
  return {std::move(dq), std::move(own.k), std::move(own.v)};
}

}  // namespace ms::train
