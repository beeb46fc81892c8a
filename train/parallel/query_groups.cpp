#include "train/parallel/query_groups.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "train/ops/elementwise.h"

namespace ms::train {

using core::Tensor;
using core::TensorView;

SharedQueryGroup::SharedQueryGroup(RankState& state)
    : state_(state),
      ranks_(*state.groups.query_group),
      heads_(state.config.model.num_attention_heads / state.tp_size()),
      head_dim_(state.config.model.kv_channels),
      width_(state.config.model.qkv_rows() / state.tp_size()),
      has_gate_(state.config.model.attention_output_gate) {
  MS_CHECK(width_ * ranks_.size() == ((has_gate_ ? 2 : 1) * heads_ * ranks_.size() + 2) * head_dim_,
           "a query group of ", width_ * ranks_.size(), " rows on ", ranks_.size(), " ranks");
}

std::optional<SharedQueryGroup> shared_query_group(RankState& state) {
  if (!state.groups.query_group) return std::nullopt;
  return SharedQueryGroup(state);
}

template <class Body>
void SharedQueryGroup::for_each_piece(int64_t begin, int64_t size, const Body& body) const {
  for (int64_t at = 0; at < size;) {
    const int64_t from = (begin + at) % width_;
    const int64_t count = std::min(size - at, width_ - from);
    body((begin + at) / width_, from, at, count);
    at += count;
  }
}

template <class Copy>
void SharedQueryGroup::for_each_copy(const TensorView& parts, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const Tensor& gate, const Copy& copy) {
  constexpr int64_t kGrainBytes = 1 << 14;
  const int64_t tokens = q.dim(0) * q.dim(1), element = core::size_of(q.dtype());
  const int64_t values = (ranks_.size() * width_ - head_dim_), keys = values - head_dim_;
  const int64_t own = heads_ * head_dim_, before = ranks_.rank() * own;
  const struct Piece {
    const Tensor& tensor;
    int64_t begin, size;
  } pieces[] = {{q, before, own},
                {k, keys, head_dim_},
                {v, values, head_dim_},
                {gate, ranks_.size() * own + before, has_gate_ ? own : 0}};
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / (ranks_.size() * width_ * element));
  state_.ops.pool.parallel_for(tokens, grain, [&](int64_t first, int64_t end) {
    for (int64_t token = first; token < end; ++token) {
      for (const Piece& piece : pieces) {
        for_each_piece(piece.begin, piece.size, [&](int64_t part, int64_t from, int64_t at, int64_t count) {
          copy(parts.bytes() + ((part * tokens + token) * width_ + from) * element,
               piece.tensor.bytes() + (token * piece.size + at) * element, static_cast<size_t>(count * element));
        });
      }
    }
  });
}

ops::QkvTensors SharedQueryGroup::gather(Tensor packed) {
  const int64_t seq = packed.dim(0), batch = packed.dim(1);
  core::Arena& arena = state_.ops.arena;
  const Tensor parts(arena, packed.dtype(), {ranks_.size() * seq, batch, width_}, core::MemoryTag::kAct);
  ranks_.allgather(packed, parts);
  packed.reset();
  const auto make = [&](int64_t heads) {
    return Tensor(arena, parts.dtype(), {seq, batch, heads, head_dim_}, core::MemoryTag::kAct);
  };
  ops::QkvTensors qkv{make(heads_), make(1), make(1)};
  if (has_gate_) qkv.gate = make(heads_);
  for_each_copy(parts, qkv.q, qkv.k, qkv.v, qkv.gate,
                [](const std::byte* part, std::byte* own, size_t bytes) { std::memcpy(own, part, bytes); });
  return qkv;
}

Tensor SharedQueryGroup::scatter(ops::QkvGradients gradients, Tensor dgate) {
  auto& [dq, dk, dv] = gradients;
  const int64_t seq = dq.dim(0), batch = dq.dim(1);
  core::Arena& arena = state_.ops.arena;
  const Tensor parts(arena, dq.dtype(), {ranks_.size() * seq, batch, width_}, core::MemoryTag::kAct);
  ops::fill_zero(state_.ops, parts);  // queries of the other ranks' heads
  for_each_copy(parts, dq, dk, dv, dgate,
                [](std::byte* part, const std::byte* own, size_t bytes) { std::memcpy(part, own, bytes); });
  dq.reset(), dk.reset(), dv.reset(), dgate.reset();
  Tensor packed(arena, parts.dtype(), {seq, batch, width_}, core::MemoryTag::kAct);
  ranks_.reduce_scatter(parts, packed);
  return packed;
}

}  // namespace ms::train
