// Attention proper, without its linear layers: softmax(scale * q k^T) v of one layer on this rank's heads
// (megatron/core/transformer/dot_product_attention.py). An interface, because how queries meet keys depends on who has
// them: this rank alone, or ranks that share a sequence (ulysses_attention.h, kv_gather_attention.h,
// ring_attention.h, adaptive_attention.h).
#pragma once

#include <cstdint>
#include <memory>

#include "train/memory/activations.h"
#include "train/model/parameters.h"
#include "train/model/sequence_context.h"
#include "train/ops/attention.h"
#include "train/rank_state.h"

namespace ms::train {

class CoreAttention {
 public:
  virtual ~CoreAttention() = default;

  // seq: the rows that this rank has of a sequence. q [seq, batch, heads / tp, d_qk], k [seq, batch, groups / tp,
  // d_qk], v [seq, batch, groups / tp, d_v] of a micro-batch, rotated and normalized, are moved into `saved`, with the
  // result, saved.out [seq, batch, heads / tp, d_v]. sequence: the same in backward.
  virtual void forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) = 0;
  // dout: gradient of saved.out. Returns those of q, k and v. dout and all of `saved` are given back to the arena.
  virtual ops::QkvGradients backward(core::Tensor dout, CoreAttentionActivations& saved,
                                     const SequenceContext& sequence) = 0;
  // Gives `saved` back what forward kept of queries, keys and values, which were dropped: from qkv, the same as in
  // forward, run again. Before backward. Collective where ranks share sequences.
  virtual void refill(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence);
};

// What a layer applies to scores, of whatever sequence: scale, softcap, window, prefix and dropout.
ops::AttentionParams attention_params(const RankState& state, int64_t layer);
// The same with the sequence's documents, or grid, and samples.
ops::AttentionParams params_of_sequence(ops::AttentionParams params, const SequenceContext& sequence);

// Queries, keys and values of all positions are on this rank. Fused kernels or, with --no-use-flash-attn, plain ones.
class LocalAttention : public CoreAttention {
 public:
  // params: without a sequence's.
  LocalAttention(RankState& state, const ops::AttentionParams& params);
  LocalAttention(RankState& state, int64_t layer)  // layer: global index
      : LocalAttention(state, attention_params(state, layer)) {}

  void forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override;
  ops::QkvGradients backward(core::Tensor dout, CoreAttentionActivations& saved,
                             const SequenceContext& sequence) override;

 private:
  RankState& state_;
  ops::AttentionParams params_;
  bool fused_;
};

// The implementation that the configuration asks for. layer: global index.
std::unique_ptr<CoreAttention> make_core_attention(RankState& state, ParameterStore& parameters, int64_t layer);

}  // namespace ms::train
