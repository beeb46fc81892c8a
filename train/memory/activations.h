// What a layer stores between its forward and its backward: a tensor, or the statistics of a norm, for each slot of
// core/layout/saved_slots.h.
//
// A layer's forward fills an activation object; its backward requires a complete one. What becomes of each slot in
// between is in `slots`, which the executor sets from its table (core/layout/slot_policy.h) before the forward, so that
// each micro-batch has its own. Slots of a module's own are dropped and recomputed by the module. Full recomputation
// keeps only the layer's input, and runs the forward again before the backward
// (megatron/core/tensor_parallel/random.py, CheckpointFunction). Results stay bitwise equal because the forward is
// deterministic. Swapped tensors are on a tier outside memory in between (activation_swap.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/layout/saved_slots.h"
#include "core/tensor.h"
#include "train/memory/moe_activations.h"
#include "train/memory/tensor_swap.h"
#include "train/ops/norm.h"

namespace ms::train {

// CoreAttention's: everything its backward needs. Here and below a tensor is undefined where it is recomputed or away.
struct CoreAttentionActivations {
  // seq: this rank's rows; with UlyssesAttention all of q, k, v and lse are of the whole sequence, on a part of the
  // heads.
  core::Tensor q;          // [seq, batch, heads / tp, d_qk], after norm and rotation
  core::Tensor k;          // [seq, batch, groups / tp, d_qk]
  core::Tensor v;          // [seq, batch, groups / tp, d_v]
  core::Tensor out;        // [seq, batch, heads / tp, d_v]
  core::Tensor whole_out;  // of UlyssesAttention: the same of the whole sequence
  // fp32 [batch, heads / tp, seq]: log(sum(exp(score))) of each row. As statistics of train/ops/ring_attention.h it is
  // a softmax_max whose softmax_sum is 1.
  core::Tensor lse;
};

// Attention's: everything its backward needs besides the layer's input.
struct AttentionActivations {
  core::Tensor normed;  // [seq', batch, hidden], seq' = seq / tp with SP
  ops::NormStatistics norm;
  // With qk_layernorm only: queries and keys before it. Of latent attention: the low-rank vectors that the queries, and
  // keys and values, come from, [seq', batch, rank].
  core::Tensor q_raw, k_raw;
  ops::NormStatistics q_norm, k_norm;
  core::Tensor q_latent, kv_latent;  // of latent attention only: these vectors, normed
  core::Tensor shared_key;           // with --recompute-mla-up-proj: [seq, batch, qk_pos_emb_head_dim], rotated
  core::Tensor gate;                 // with an output gate only: [seq, batch, heads / tp, d]; in backward its gradient
  CoreAttentionActivations core;
  core::Tensor branch;  // with post_norm only: what the norm behind attention reads, [seq', batch, hidden]
  ops::NormStatistics post_norm;
};

// FeedForward's: everything its backward needs besides its input, the residual stream.
struct FeedForwardActivations {
  core::Tensor normed;  // [seq', batch, hidden]
  ops::NormStatistics norm;
  core::Tensor fc1;      // [seq, batch, ffn / tp], or [gate | up] of twice that
  core::Tensor product;  // [seq, batch, ffn / tp]: what linear_fc2 reads
  core::Tensor branch;   // with post_norm only: what the norm behind the MLP reads
  ops::NormStatistics post_norm;
  MoeActivations moe;  // of a layer with experts, besides the norm
};

struct LayerActivations {
  core::Tensor input;  // [seq', batch, hidden]
  AttentionActivations attention;
  core::Tensor post_attention;  // [seq', batch, hidden]: the residual stream after attention
  FeedForwardActivations feed_forward;
  layout::LayerSlots slots;
  std::array<SwappedTensor, layout::kNumSavedSlots> swapped;  // of each slot; filled by ActivationSwap alone
  bool complete = false;                                      // false after drop(): backward must run the forward first

  // The slot's tensor; null of statistics, which are small: they are never swapped.
  core::Tensor* tensor(layout::SavedSlot slot);

  // Of a layer that runs again: all but what `slots` keep.
  void drop() {
    if (slots[layout::SavedSlot::kInput] == layout::SlotDecision::kRecompute) input.reset();
    attention = {};
    post_attention.reset();
    feed_forward = {};
    complete = false;
  }
};

}  // namespace ms::train
