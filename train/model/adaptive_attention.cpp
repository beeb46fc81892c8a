#include "train/model/adaptive_attention.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "train/model/document_ranges.h"
#include "train/ops/attention_merge.h"
#include "train/ops/elementwise.h"

namespace ms::train {

using core::Tensor;
using core::TensorView;
namespace {

constexpr int kTagOfKeys = 0, kTagOfGradients = 2;

Tensor same_shape(ops::Context& ops, const TensorView& x, core::DType dtype) {
  return {ops.arena, dtype, x.shape(), core::MemoryTag::kAct};
}

// The rows from the first to the last one that a list has.
ops::RowSpan span_of(const std::vector<ops::AttentionRange>& ranges) {
  int64_t first = ranges.front().first_row, end = first;
  for (const ops::AttentionRange& of : ranges) {
    first = std::min(first, of.first_row);
    end = std::max(end, of.first_row + of.rows);
  }
  return {first, end - first};
}

const layout::AdaptivePlan& plan_of(const SequenceContext& sequence, const core::Communicator& ranks) {
  const layout::AdaptivePlan* const plan = sequence.share.plan().get();
  MS_CHECK(plan != nullptr && plan->ranks() == ranks.size(), "a plan for ", plan == nullptr ? 0 : plan->ranks(),
           " ranks, of ", ranks.size());
  return *plan;
}

}  // namespace

struct AdaptiveAttention::Messages {
  int from = -1;              // whose block comes; -1: none
  std::vector<Keys> tensors;  // received, and those sent that nobody else keeps
  std::vector<core::Work> works;

  void finish() {
    for (core::Work& work : works) work.wait();
    works.clear();
  }
};

AdaptiveAttention::Ranges AdaptiveAttention::ranges_of(int keys_of, const SequenceContext& sequence,
                                                       int64_t batch) const {
  const layout::SequenceShare queries(sequence.share.plan(), ranks_.rank());
  const layout::SequenceShare keys =
      keys_of == ranks_.rank() ? queries : layout::SequenceShare(sequence.share.plan(), keys_of);
  if (sequence.grid == nullptr) return {scattered_ranges(sequence.document_ends, batch, queries, keys, params_.prefix)};
  const int64_t rows = queries.rows_before(queries.seq_length());
  Ranges ranges{{}, grid_runs(*sequence.grid, queries, {0, rows}, keys, rows)};
  if (ranges.runs.sees_any()) ranges.lists.push_back(ranges_of_lists(ranges.runs, batch, rows, rows));
  return ranges;
}

AdaptiveAttention::Keys AdaptiveAttention::keys_like(const TensorView& k, const TensorView& v) {
  return {same_shape(ops_, k, k.dtype()), same_shape(ops_, v, v.dtype())};
}

AdaptiveAttention::Messages AdaptiveAttention::post(const layout::AdaptivePlan& plan, size_t round,
                                                    const CoreAttentionActivations& saved) {
  Messages messages;
  if (round >= plan.rounds.size()) return messages;
  for (const layout::BlockTransfer& block : plan.rounds[round]) {
    if (block.to == ranks_.rank()) {
      messages.from = block.from;
      const Keys& received = messages.tensors.emplace_back(keys_like(saved.k, saved.v));
      messages.works.push_back(ranks_.irecv(received.k, block.from, kTagOfKeys));
      messages.works.push_back(ranks_.irecv(received.v, block.from, kTagOfKeys + 1));
    } else if (block.from == ranks_.rank()) {
      messages.works.push_back(ranks_.isend(saved.k, block.to, kTagOfKeys));
      messages.works.push_back(ranks_.isend(saved.v, block.to, kTagOfKeys + 1));
    }
  }
  return messages;
}

AdaptiveAttention::Messages AdaptiveAttention::receive_gradients(const layout::AdaptivePlan& plan, size_t round,
                                                                 const CoreAttentionActivations& saved) {
  Messages messages;
  for (const layout::BlockTransfer& block : plan.rounds[round]) {
    if (block.from != ranks_.rank()) continue;
    const Keys& received = messages.tensors.emplace_back(keys_like(saved.k, saved.v));
    messages.works.push_back(ranks_.irecv(received.k, block.to, kTagOfGradients));
    messages.works.push_back(ranks_.irecv(received.v, block.to, kTagOfGradients + 1));
  }
  return messages;
}

// The result so far: fp32, and the result of a list of ranges beside it.
class AdaptiveAttention::Sums {
 public:
  Sums(ops::Context& ops, const TensorView& q, int64_t value_dim)
      : ops_(ops), q_(q), out_(ops.arena, q.dtype(), {q.dim(0), q.dim(1), q.dim(2), value_dim}, core::MemoryTag::kAct) {
    lse_ = Tensor(ops.arena, core::DType::kFp32, {q.dim(1), q.dim(2), q.dim(0)}, core::MemoryTag::kAct);
    sum_ = same_shape(ops, out_, core::DType::kFp32);
    sum_lse_ = same_shape(ops, lse_, core::DType::kFp32);
  }
  // At first the own block, in which each row sees itself unless a grid hides that.
  void add(const Ranges& ranges_of_block, const TensorView& k, const TensorView& v,
           const ops::AttentionParams& params) {
    for (const std::vector<ops::AttentionRange>& ranges : ranges_of_block.lists) {
      const ops::RowSpan rows = std::exchange(is_first_, false) ? ops::RowSpan{0, q_.dim(0)} : span_of(ranges);
      ops::range_attention(ops_, q_, k, v, rows, ranges, params, out_, lse_);
      if (!std::exchange(has_sum_, true)) {
        ops::cast_into(ops_, out_, sum_);
        ops::cast_into(ops_, lse_, sum_lse_);
      } else {
        ops::merge_attention(ops_, out_, lse_, rows, sum_, sum_lse_);
      }
    }
  }
  void take(CoreAttentionActivations& saved) {
    ops::cast_into(ops_, sum_, out_);
    saved.out = std::move(out_);
    saved.lse = std::move(sum_lse_);
  }

 private:
  ops::Context& ops_;
  const TensorView& q_;
  Tensor out_, lse_, sum_, sum_lse_;
  bool is_first_ = true, has_sum_ = false;
};

void AdaptiveAttention::forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) {
  saved.q = std::move(qkv.q);
  saved.k = std::move(qkv.k);
  saved.v = std::move(qkv.v);
  const layout::AdaptivePlan& plan = plan_of(sequence, ranks_);
  const ops::AttentionParams params = params_of_sequence(params_, sequence);
  const int64_t batch = saved.q.dim(1);
  Sums sums(ops_, saved.q, saved.v.dim(3));
  Messages arriving = post(plan, 0, saved);
  sums.add(ranges_of(ranks_.rank(), sequence, batch), saved.k, saved.v, params);
  for (size_t round = 0; round < plan.rounds.size(); ++round) {
    arriving.finish();
    const Messages here = std::exchange(arriving, post(plan, round + 1, saved));
    if (here.from < 0) continue;
    const Keys& keys = here.tensors.front();
    sums.add(ranges_of(here.from, sequence, batch), keys.k, keys.v, params);
  }
  sums.take(saved);
}

// The gradient of the queries, and what a block adds to it.
class AdaptiveAttention::Gradients {
 public:
  Gradients(ops::Context& ops, const TensorView& dout, const CoreAttentionActivations& saved,
            const ops::AttentionParams& params)
      : ops_(ops),
        dout_(dout),
        saved_(saved),
        params_(params),
        sum_(same_shape(ops, saved.q, core::DType::kFp32)),
        dq_(same_shape(ops, saved.q, saved.q.dtype())) {
    ops::fill_zero(ops_, sum_);
  }
  // Overwrites dk and dv with those of the block.
  void add(const Ranges& ranges, const TensorView& k, const TensorView& v, const Keys& gradients) {
    const auto& lists = ranges.lists;
    if (lists.empty()) {
      for (const Tensor* gradient : {&gradients.k, &gradients.v}) ops::fill_zero(ops_, *gradient);
      return;
    }
    add(lists.front(), k, v, gradients.k, gradients.v);
    for (size_t i = 1; i < lists.size(); ++i) {
      const Tensor dk = same_shape(ops_, k, k.dtype()), dv = same_shape(ops_, v, v.dtype());
      add(lists[i], k, v, dk, dv);
      ops::add_inplace(ops_, gradients.k, dk);
      ops::add_inplace(ops_, gradients.v, dv);
    }
  }
  Tensor take() {
    ops::cast_into(ops_, sum_, dq_);
    sum_.reset();
    return std::move(dq_);
  }

 private:
  void add(const std::vector<ops::AttentionRange>& ranges, const TensorView& k, const TensorView& v,
           const TensorView& dk, const TensorView& dv) {
    const ops::RowSpan rows = span_of(ranges);
    ops::range_attention_backward(ops_, dout_, saved_.q, k, v, saved_.out, saved_.lse, rows, ranges, params_,
                                  {dq_, dk, dv});
    const int64_t begin = rows.first, end = rows.first + rows.count;
    ops::accumulate_fp32(ops_, sum_.view().rows(begin, end), dq_.view().rows(begin, end));
  }

  ops::Context& ops_;
  const TensorView& dout_;
  const CoreAttentionActivations& saved_;
  const ops::AttentionParams& params_;
  Tensor sum_, dq_;
};

ops::QkvGradients AdaptiveAttention::backward(Tensor dout, CoreAttentionActivations& saved,
                                              const SequenceContext& sequence) {
  const layout::AdaptivePlan& plan = plan_of(sequence, ranks_);
  const ops::AttentionParams params = params_of_sequence(params_, sequence);
  const int64_t batch = saved.q.dim(1);
  Gradients queries(ops_, dout, saved, params);
  Keys own = keys_like(saved.k, saved.v);
  Messages arriving = post(plan, 0, saved);
  queries.add(ranges_of(ranks_.rank(), sequence, batch), saved.k, saved.v, own);
  Messages leaving, returning;  // gradients of the round before
  const auto end_round = [&] {
    leaving.finish();
    leaving = {};
    returning.finish();
    for (const Keys& gradients : returning.tensors) {
      ops::add_inplace(ops_, own.k, gradients.k);
      ops::add_inplace(ops_, own.v, gradients.v);
    }
    returning = {};
  };
  for (size_t round = 0; round < plan.rounds.size(); ++round) {
    arriving.finish();
    const Messages here = std::exchange(arriving, post(plan, round + 1, saved));
    Messages computed, expected = receive_gradients(plan, round, saved);
    if (here.from >= 0) {
      const Keys& keys = here.tensors.front();
      const Keys& gradients = computed.tensors.emplace_back(keys_like(keys.k, keys.v));
      queries.add(ranges_of(here.from, sequence, batch), keys.k, keys.v, gradients);
      computed.works.push_back(ranks_.isend(gradients.k, here.from, kTagOfGradients));
      computed.works.push_back(ranks_.isend(gradients.v, here.from, kTagOfGradients + 1));
    }
    end_round();
    leaving = std::move(computed);
    returning = std::move(expected);
  }
  end_round();
  Tensor dq = queries.take();
  dout.reset();
  saved = {};
  return {std::move(dq), std::move(own.k), std::move(own.v)};
}

}  // namespace ms::train
