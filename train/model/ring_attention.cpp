#include "train/model/ring_attention.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/error.h"
#include "train/model/document_ranges.h"
#include "train/ops/attention_merge.h"
#include "train/ops/elementwise.h"
#include "train/ops/range_attention.h"

namespace ms::train {

using core::Tensor;
using core::TensorView;
namespace {

constexpr int kKeys = 0, kGradients = 2;  // first tags of what travels

Tensor tensor_like(ops::Context& ops, const TensorView& x, core::DType dtype) {
  return {ops.arena, dtype, x.shape(), core::MemoryTag::kAct};
}

TensorView rows_of_span(const TensorView& x, ops::RowSpan rows) { return x.rows(rows.first, rows.first + rows.count); }

int neighbour(const core::Communicator& ranks, int distance) {
  return (ranks.rank() + distance + ranks.size()) % ranks.size();
}

}  // namespace

int RingAttention::place_before(int windows, int ranks) const {
  const int of_window = options_.window != nullptr ? neighbour(*options_.window, -ranks) : 0;
  return neighbour(ring_, -windows) * window_size() + of_window;
}

struct RingAttention::Block {
  ops::RowSpan rows, keys;
  std::vector<ops::AttentionRange> ranges;  // that count keys from the first of `keys` on
  layout::RunLists lists = {};              // of a grid, to which ranges refer
};

std::vector<RingAttention::Block> RingAttention::blocks_before(int windows, int ranks, const TensorView& queries,
                                                               const SequenceContext& sequence) const {
  const int64_t rows = queries.dim(0), batch = queries.dim(1);
  const int rank = place(), source = place_before(windows, ranks), size = ring_.size() * window_size();
  const auto share = [&](int of) {
    return layout::SequenceShare(layout::ContextAlgorithm::kRing, rows * size, size, of);
  };
  const ops::RowSpan all{0, rows}, front{0, rows / 2}, back{rows / 2, rows / 2};
  std::vector<Block> blocks;
  const auto add = [&](ops::RowSpan keys, std::vector<ops::AttentionRange> ranges) {
    if (ranges.empty()) return;
    int64_t first = rows, end = 0;
    for (const ops::AttentionRange& of : ranges)
      first = std::min(first, of.first_row), end = std::max(end, of.first_row + of.rows);
    blocks.push_back({{first, end - first}, keys, std::move(ranges)});
  };
  if (sequence.grid != nullptr) {
    layout::RunLists lists = grid_runs(*sequence.grid, share(rank), {0, rows}, share(source), rows);
    // The own block is the first, which fills all rows.
    if (!lists.sees_any() && source != rank) return blocks;
    std::vector<ops::AttentionRange> ranges = ranges_of_lists(lists, batch, rows, rows);
    blocks.push_back({all, all, std::move(ranges), std::move(lists)});
    return blocks;
  }
  const std::span<const int64_t> ends = sequence.document_ends;
  if (attends_segments()) {
    const auto segments = [&](ops::RowSpan of_queries, ops::RowSpan of_keys) {
      return segment_ranges(ends, batch, share(rank), of_queries, share(source), of_keys, params_.window,
                            params_.prefix);
    };
    if (source == rank) {
      std::vector<ops::AttentionRange> own = segments(front, front);
      for (ops::AttentionRange& of : segments(back, back)) own.push_back(of), own.back().first_key += back.first;
      add(all, std::move(own));
    } else {
      add(front, segments(front, front));
    }
    add(front, segments(back, front));
    add(back, segments(front, back));
    if (source != rank) add(back, segments(back, back));
    return blocks;
  }
  const ops::RowSpan of_queries = source > rank ? back : all, of_keys = source < rank ? front : all;
  if (ends.empty()) {
    const int64_t distance = source == rank ? 0 : source < rank ? rows / 2 : rows;
    std::vector<ops::AttentionRange> ranges;
    for (int64_t sample = 0; sample < batch; ++sample) {
      ranges.push_back({.sample = sample,
                        .first_row = of_queries.first,
                        .rows = of_queries.count,
                        .keys = of_keys.count,
                        .distance = distance,
                        .position = distance});
    }
    add(of_keys, std::move(ranges));
  } else {
    add(of_keys, document_ranges(ends, batch, share(rank), of_queries, share(source), of_keys.count));
  }
  return blocks;
}

RingAttention::Keys RingAttention::keys_like(const Keys& keys) {
  return {Part(tensor_like(ops_, keys.k, keys.k.rows.dtype())), Part(tensor_like(ops_, keys.v, keys.v.rows.dtype()))};
}

RingAttention::Keys RingAttention::begin(Tensor k, Tensor v, CoreAttentionActivations& saved) {
  const auto first = [&](Tensor own, Tensor& cache, bool is_cached) {
    if (!is_cached) return Part(std::move(own));
    core::Dims shape = own.shape();
    shape.front() *= ring_.size() * window_size();
    cache = Tensor(ops_.arena, own.dtype(), shape, core::MemoryTag::kAct);
    const TensorView rows = cache.view().rows(0, own.dim(0));
    ops::cast_into(ops_, own, rows);
    return Part(rows);
  };
  Keys keys;
  keys.k = first(std::move(k), saved.k, caches_keys());
  keys.v = first(std::move(v), saved.v, caches_values());
  return keys;
}

RingAttention::Keys RingAttention::room_for(int windows, int ranks, const Keys& keys,
                                            const CoreAttentionActivations& saved) {
  const int64_t block = int64_t{windows} * window_size() + ranks, rows = saved.q.dim(0);
  const auto room = [&](const Part& like, const Tensor& cache, bool is_cached) {
    return is_cached ? Part(cache.view().rows(block * rows, (block + 1) * rows))
                     : Part(tensor_like(ops_, like, like.rows.dtype()));
  };
  return {room(keys.k, saved.k, caches_keys()), room(keys.v, saved.v, caches_values())};
}

struct RingAttention::Hop {
  Keys sent, received;
  std::array<core::Work, 4> works;

  // to, from: group ranks. tag: kKeys or kGradients.
  void receive(core::Communicator& ranks, int from, int tag, Travels travels) {
    if (travels.k) works[0] = ranks.irecv(received.k, from, tag);
    if (travels.v) works[1] = ranks.irecv(received.v, from, tag + 1);
  }
  void send(core::Communicator& ranks, int to, int tag, Travels travels) {
    if (travels.k) works[2] = ranks.isend(sent.k, to, tag);
    if (travels.v) works[3] = ranks.isend(sent.v, to, tag + 1);
  }
  void finish() {
    for (core::Work& work : works) work.wait();
  }
  // What has arrived.
  Keys take() {
    finish();
    sent = {};
    return std::move(received);
  }
};

void RingAttention::exchange(Hop& hop, core::Communicator& ranks, Keys keys, Keys room, int to, Travels travels) {
  hop.received = std::move(room);
  hop.sent = std::move(keys);
  hop.receive(ranks, neighbour(ranks, -to), kKeys, travels);
  hop.send(ranks, neighbour(ranks, to), kKeys, travels);
  if (!options_.overlaps) hop.finish();
}

// The result so far: fp32, and the result of a block beside it.
struct RingAttention::Sums {
  Tensor sum, sum_lse, out, lse;
  bool is_empty = true;

  void add(ops::Context& ops, const TensorView& q, const Keys& keys, const std::vector<Block>& blocks,
           const ops::AttentionParams& params) {
    for (const Block& block : blocks) {
      const TensorView k = rows_of_span(keys.k, block.keys), v = rows_of_span(keys.v, block.keys);
      ops::range_attention(ops, q, k, v, block.rows, block.ranges, params, out, lse);
      if (std::exchange(is_empty, false)) {  // of all queries
        ops::cast_into(ops, out, sum);
        ops::cast_into(ops, lse, sum_lse);
      } else {
        ops::merge_attention(ops, out, lse, block.rows, sum, sum_lse);
      }
    }
  }
};

void RingAttention::forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) {
  saved.q = std::move(qkv.q);
  Keys keys = begin(std::move(qkv.k), std::move(qkv.v), saved);
  const int64_t rows = saved.q.dim(0), batch = saved.q.dim(1), heads = saved.q.dim(2);
  const core::Dims out_shape = {rows, batch, heads, keys.v.rows.dim(3)}, lse_shape = {batch, heads, rows};
  const auto make = [&](core::DType dtype, const core::Dims& shape) {
    return Tensor(ops_.arena, dtype, shape, core::MemoryTag::kAct);
  };
  Sums sums{make(core::DType::kFp32, out_shape), make(core::DType::kFp32, lse_shape), make(saved.q.dtype(), out_shape),
            make(core::DType::kFp32, lse_shape)};
  const ops::AttentionParams params = params_of_sequence(params_, sequence);
  for (int outer = 0; outer < windows(); ++outer) {
    Hop ahead;  // to the next window
    const bool goes_on = outer + 1 < windows();
    if (goes_on) exchange(ahead, ring_, keys.share(), room_for(outer + 1, 0, keys, saved), 1, {});
    for (int inner = 0; inner < window_size(); ++inner) {
      Hop hop;
      const bool goes_further = inner + 1 < window_size();
      if (goes_further) exchange(hop, *options_.window, keys.share(), room_for(outer, inner + 1, keys, saved), 1, {});
      sums.add(ops_, saved.q, keys, blocks_before(outer, inner, saved.q, sequence), params);
      if (goes_further) keys = hop.take();
    }
    if (goes_on) keys = ahead.take();
  }
  if (!caches_keys()) saved.k = std::move(keys.k.owner);
  if (!caches_values()) saved.v = std::move(keys.v.owner);
  ops::cast_into(ops_, sums.sum, sums.out);
  saved.out = std::move(sums.out);
  saved.lse = std::move(sums.sum_lse);
}

void RingAttention::refill(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext&) {
  MS_CHECK(!caches_keys() && !caches_values(), "blocks of a ring are kept, and run again");
  saved.q = std::move(qkv.q);
  Keys keys{Part(std::move(qkv.k)), Part(std::move(qkv.v))};
  // The block that came last is that of the next rank of the next window.
  const auto take_next = [&](core::Communicator& ranks) {
    Hop hop;
    exchange(hop, ranks, keys.share(), keys_like(keys), -1, {});
    keys = hop.take();
  };
  if (windows() > 1) take_next(ring_);
  if (window_size() > 1) take_next(*options_.window);
  saved.k = std::move(keys.k.owner);
  saved.v = std::move(keys.v.owner);
}

// The gradient of the queries, and what blocks add to it.
class RingAttention::QueryGradients {
 public:
  QueryGradients(ops::Context& ops, const TensorView& dout, const CoreAttentionActivations& saved,
                 const ops::AttentionParams& params)
      : ops_(ops),
        dout_(dout),
        saved_(saved),
        params_(params),
        sum_(tensor_like(ops, saved.q, core::DType::kFp32)),
        dq_(tensor_like(ops, saved.q, saved.q.dtype())) {
    ops::fill_zero(ops_, sum_);
  }
  // Overwrites `gradients` with those of `keys`.
  void add(const std::vector<Block>& blocks, const Keys& keys, const Keys& gradients) {
    clear_outside(blocks.empty() ? ops::RowSpan{} : blocks.front().keys, gradients);
    for (const Block& block : blocks) {
      const bool adds = &block != &blocks.front();
      const auto seen = [&](const TensorView& x) { return rows_of_span(x, block.keys); };
      ops::range_attention_backward(ops_, dout_, saved_.q, seen(keys.k), seen(keys.v), saved_.out, saved_.lse,
                                    block.rows, block.ranges, params_,
                                    {dq_, seen(gradients.k), seen(gradients.v), adds});
      ops::accumulate_fp32(ops_, rows_of_span(sum_, block.rows), rows_of_span(dq_, block.rows));
    }
  }
  Tensor take() {
    ops::cast_into(ops_, sum_, dq_);
    sum_.reset();
    return std::move(dq_);
  }

 private:
  void clear_outside(ops::RowSpan keys, const Keys& gradients) {
    const int64_t end = keys.first + keys.count;
    for (const TensorView& gradient : {gradients.k.rows, gradients.v.rows}) {
      if (keys.first > 0) ops::fill_zero(ops_, gradient.rows(0, keys.first));
      if (end < gradient.dim(0)) ops::fill_zero(ops_, gradient.rows(end, gradient.dim(0)));
    }
  }

  ops::Context& ops_;
  const TensorView& dout_;
  const CoreAttentionActivations& saved_;
  const ops::AttentionParams& params_;
  Tensor sum_, dq_;
};

ops::QkvGradients RingAttention::backward(Tensor dout, CoreAttentionActivations& saved,
                                          const SequenceContext& sequence) {
  const int last_window = windows() - 1, last = window_size() - 1;
  const auto last_block = [rows = saved.q.dim(0)](Tensor& blocks, bool is_cached) {
    return is_cached ? Part(blocks.view().rows(blocks.dim(0) - rows, blocks.dim(0))) : Part(std::move(blocks));
  };
  Keys keys{last_block(saved.k, caches_keys()), last_block(saved.v, caches_values())};
  const Travels travels{.k = !caches_keys(), .v = !caches_values()};
  // The block itself where it is cached, else room for it.
  const auto block_of = [&](int windows, int ranks) { return room_for(windows, ranks, keys, saved); };
  const ops::AttentionParams params = params_of_sequence(params_, sequence);
  QueryGradients queries(ops_, dout, saved, params);
  const auto receive = [&](Hop& arriving, core::Communicator& ranks) {
    arriving.received = keys_like(keys);
    arriving.receive(ranks, neighbour(ranks, 1), kGradients, {});
    if (!options_.overlaps) arriving.finish();
  };
  Keys own;  // gradients of the block and, from the windows and ranks before, of what they have added to them
  const auto add = [&](Hop& arriving) {
    const Keys arrived = arriving.take();
    ops::add_inplace(ops_, own.k, arrived.k);
    ops::add_inplace(ops_, own.v, arrived.v);
  };
  // Gradients that the next rank adds to, where those before them have left.
  const auto send = [&](Hop& leaving, core::Communicator& ranks) {
    leaving.finish();
    leaving.sent = std::move(own);
    leaving.send(ranks, neighbour(ranks, -1), kGradients, {});
  };
  Hop to_window;
  for (int outer = 0; outer < windows(); ++outer) {
    const bool goes_on = outer + 1 < windows();
    Hop ahead, of_windows, to_rank;
    if (goes_on) exchange(ahead, ring_, keys.share(), block_of(last_window - outer - 1, last), -1, travels);
    if (outer > 0) receive(of_windows, ring_);
    for (int inner = 0; inner < window_size(); ++inner) {
      const bool goes_further = inner + 1 < window_size();
      Hop hop, of_ranks;
      if (goes_further)
        exchange(hop, *options_.window, keys.share(), block_of(last_window - outer, last - inner - 1), -1, travels);
      if (inner > 0) receive(of_ranks, *options_.window);
      own = keys_like(keys);
      queries.add(blocks_before(last_window - outer, last - inner, saved.q, sequence), keys, own);
      if (inner > 0) add(of_ranks);
      if (goes_further) keys = hop.take();
      if (goes_further) send(to_rank, *options_.window);
    }
    to_rank.take();
    if (outer > 0) add(of_windows);
    if (goes_on) keys = ahead.take();
    if (goes_on) send(to_window, ring_);
  }
  to_window.take();
  Tensor dq = queries.take();
  keys = {};
  dout.reset();
  saved = {};
  return {std::move(dq), std::move(own.k.owner), std::move(own.v.owner)};
}

}  // namespace ms::train
