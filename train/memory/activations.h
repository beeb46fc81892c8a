// What a layer stores between its forward and its backward, and which of it is dropped and recomputed.
//
// A layer's forward fills an activation object; its backward requires a complete one. In between, a policy may keep,
// drop or recompute parts. Full recomputation keeps only the layer's input, and runs the forward again before the
// backward (megatron/core/tensor_parallel/random.py, CheckpointFunction). Results stay bitwise equal because the
// forward is deterministic. Single tensors may be on a tier outside memory in between (activation_swap.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "train/memory/moe_activations.h"
#include "train/memory/tensor_swap.h"
#include "train/ops/norm.h"

namespace ms::train {

// CoreAttention's: everything its backward needs.
struct CoreAttentionActivations {
  core::Tensor q;    // [seq, batch, heads / tp, d_qk], after norm and rotation
  core::Tensor k;    // [seq, batch, groups / tp, d_qk]
  core::Tensor v;    // [seq, batch, groups / tp, d_v]
  core::Tensor out;  // [seq, batch, heads / tp, d_v]
  // fp32 [batch, heads / tp, seq]: log(sum(exp(score))) of each row. As statistics of train/ops/ring_attention.h it is
  // a softmax_max whose softmax_sum is 1.
  core::Tensor lse;
};

// Attention's: everything its backward needs besides the layer's input.
struct AttentionActivations {
  core::Tensor normed;  // [seq', batch, hidden], seq' = seq / tp with SP; undefined if it is recomputed
  ops::NormStatistics norm;
  core::Tensor q_raw, k_raw;  // with qk_layernorm only: queries and keys before it
  ops::NormStatistics q_norm, k_norm;
  CoreAttentionActivations core;
  core::Tensor branch;  // with post_norm only: what the norm behind attention reads, [seq', batch, hidden]
  ops::NormStatistics post_norm;
};

// FeedForward's: everything its backward needs besides its input, the residual stream.
struct FeedForwardActivations {
  core::Tensor normed;  // [seq', batch, hidden]; undefined if it is recomputed
  ops::NormStatistics norm;
  core::Tensor fc1;      // [seq, batch, ffn / tp], or [gate | up] of twice that; undefined if it is recomputed
  core::Tensor product;  // [seq, batch, ffn / tp]: what linear_fc2 reads; undefined if it is recomputed
  core::Tensor branch;   // with post_norm only: what the norm behind the MLP reads
  ops::NormStatistics post_norm;
  MoeActivations moe;  // of a layer with experts, besides the norm
};

// The tensors of a layer that can leave memory by themselves.
enum class SavedSlot : uint8_t { kInputNorm, kQ, kK, kV, kQRaw, kKRaw, kOut, kLse, kPostAttentionNorm };
inline constexpr size_t kNumSavedSlots = 9;

struct LayerActivations {
  core::Tensor input;  // [seq', batch, hidden]
  AttentionActivations attention;
  core::Tensor post_attention;  // [seq', batch, hidden]: the residual stream after attention
  FeedForwardActivations feed_forward;
  std::array<SwappedTensor, kNumSavedSlots> swapped;  // of each SavedSlot; filled by ActivationSwap alone
  bool complete = false;                              // false after drop(): backward must run the forward first

  core::Tensor& slot(SavedSlot slot) {
    CoreAttentionActivations& core = attention.core;
    core::Tensor* const slots[] = {&attention.normed, &core.q,          &core.k,
                                   &core.v,           &attention.q_raw, &attention.k_raw,
                                   &core.out,         &core.lse,        &feed_forward.normed};
    return *slots[static_cast<size_t>(slot)];
  }

  void drop() {
    attention = {};
    post_attention.reset();
    feed_forward = {};
    complete = false;
  }
};

}  // namespace ms::train
