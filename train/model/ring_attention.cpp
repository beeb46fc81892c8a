#include "train/model/ring_attention.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "train/ops/attention_merge.h"
#include "train/ops/block_attention.h"
#include "train/ops/elementwise.h"

namespace ms::train {

using core::Tensor;
using core::TensorView;
namespace {

constexpr int kKeys = 0, kGradients = 2;  // first tags of what travels

// The part of a rank's queries that sees a part of the keys of `source`.
struct Block {
  ops::QueryBlock queries;
  int64_t keys;  // the first ones
};
Block block_of(int64_t rows, int rank, int source) {
  if (source == rank) return {{.first_row = 0, .rows = rows, .distance = 0}, rows};
  if (source < rank) return {{.first_row = 0, .rows = rows, .distance = rows / 2}, rows / 2};
  return {{.first_row = rows / 2, .rows = rows / 2, .distance = rows}, rows};
}

Tensor tensor_like(ops::Context& ops, const TensorView& x, core::DType dtype) {
  return {ops.arena, dtype, x.shape(), core::MemoryTag::kAct};
}

}  // namespace

RingAttention::Keys RingAttention::keys_like(const Keys& keys) {
  return {tensor_like(ops_, keys.k, keys.k.dtype()), tensor_like(ops_, keys.v, keys.v.dtype())};
}

struct RingAttention::Hop {
  Keys sent, received;
  std::array<core::Work, 4> works;

  // to, from: group ranks. tag: kKeys or kGradients.
  void receive(core::Communicator& ranks, int from, int tag) {
    works[0] = ranks.irecv(received.k, from, tag);
    works[1] = ranks.irecv(received.v, from, tag + 1);
  }
  void send(core::Communicator& ranks, int to, int tag) {
    works[2] = ranks.isend(sent.k, to, tag);
    works[3] = ranks.isend(sent.v, to, tag + 1);
  }
  void finish() {
    for (core::Work& work : works) work.wait();
  }
};

void RingAttention::forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) {
  saved.q = std::move(qkv.q);
  Keys keys{std::move(qkv.k), std::move(qkv.v)};
  const int64_t rows = saved.q.dim(0), batch = saved.q.dim(1), heads = saved.q.dim(2);
  const core::Dims out_shape = {rows, batch, heads, keys.v.dim(3)}, lse_shape = {batch, heads, rows};
  const auto make = [&](core::DType dtype, const core::Dims& shape) {
    return Tensor(ops_.arena, dtype, shape, core::MemoryTag::kAct);
  };
  Tensor sum = make(core::DType::kFp32, out_shape), sum_lse = make(core::DType::kFp32, lse_shape);
  Tensor out = make(saved.q.dtype(), out_shape), lse = make(core::DType::kFp32, lse_shape);
  const ops::AttentionParams params = params_of_sequence(params_, sequence);
  for (int step = 0; step < ranks_.size(); ++step) {
    Hop hop;
    const bool goes_on = step + 1 < ranks_.size();
    if (goes_on) {
      hop.received = keys_like(keys);
      hop.sent = std::move(keys);
      hop.receive(ranks_, after(-1), kKeys);
      hop.send(ranks_, after(1), kKeys);
    }
    const Keys& here = goes_on ? hop.sent : keys;
    const Block block = block_of(rows, ranks_.rank(), after(-step));
    ops::block_attention(ops_, saved.q, here.k.view().rows(0, block.keys), here.v.view().rows(0, block.keys),
                         block.queries, params, out, lse);
    if (step == 0) {
      ops::cast_into(ops_, out, sum);
      ops::cast_into(ops_, lse, sum_lse);
    } else {
      ops::merge_attention(ops_, out, lse, block.queries, sum, sum_lse);
    }
    if (!goes_on) break;
    hop.finish();
    keys = std::move(hop.received);
  }
  saved.k = std::move(keys.k);
  saved.v = std::move(keys.v);
  ops::cast_into(ops_, sum, out);
  saved.out = std::move(out);
  saved.lse = std::move(sum_lse);
}

ops::QkvGradients RingAttention::backward(Tensor dout, CoreAttentionActivations& saved,
                                          const SequenceContext& sequence) {
  Keys keys{std::move(saved.k), std::move(saved.v)};
  const int64_t rows = saved.q.dim(0);
  Tensor dq_sum = tensor_like(ops_, saved.q, core::DType::kFp32);
  Tensor dq = tensor_like(ops_, saved.q, saved.q.dtype());
  ops::fill_zero(ops_, dq_sum);
  const ops::AttentionParams params = params_of_sequence(params_, sequence);
  Hop leaving;  // gradients that the next rank adds to
  Keys own;     // of the block, in the end of this rank's keys
  for (int step = 0; step < ranks_.size(); ++step) {
    const bool goes_on = step + 1 < ranks_.size();
    Hop hop;
    if (goes_on) {
      hop.received = keys_like(keys);
      hop.sent = std::move(keys);
      hop.receive(ranks_, after(1), kKeys);
      hop.send(ranks_, after(-1), kKeys);
    }
    const Keys& here = goes_on ? hop.sent : keys;
    Hop arriving;  // what other ranks have added for this block
    if (step > 0) {
      arriving.received = keys_like(here);
      arriving.receive(ranks_, after(1), kGradients);
    }
    own = keys_like(here);
    const Block block = block_of(rows, ranks_.rank(), after(step + 1));
    ops::block_attention_backward(ops_, dout, saved.q, here.k.view().rows(0, block.keys),
                                  here.v.view().rows(0, block.keys), saved.out, saved.lse, block.queries, params,
                                  {dq, own.k.view().rows(0, block.keys), own.v.view().rows(0, block.keys)});
    const int64_t begin = block.queries.first_row, end = begin + block.queries.rows;
    ops::accumulate_fp32(ops_, dq_sum.view().rows(begin, end), dq.view().rows(begin, end));
    for (Tensor* gradient : {&own.k, &own.v})
      if (block.keys < rows) ops::fill_zero(ops_, gradient->view().rows(block.keys, rows));
    arriving.finish();
    if (step > 0) {
      ops::add_inplace(ops_, own.k, arriving.received.k);
      ops::add_inplace(ops_, own.v, arriving.received.v);
      arriving.received = {};
    }
    hop.finish();
    if (goes_on) keys = std::move(hop.received);
    hop.sent = {};
    leaving.finish();
    if (!goes_on) break;
    leaving.sent = std::move(own);
    leaving.send(ranks_, after(-1), kGradients);
  }
  leaving.sent = {};
  ops::cast_into(ops_, dq_sum, dq);
  dq_sum.reset();
  keys = {};
  dout.reset();
  saved = {};
  return {std::move(dq), std::move(own.k), std::move(own.v)};
}

}  // namespace ms::train
