// Causal self-attention in tiles (Dao et al. 2022, 2023): exact softmax, O(seq) memory, grouped-query without copies of
// K and V, and the packing of Q, K, V as Megatron's linear_qkv writes them.
//
// seq s, batch b, heads nh, groups (K/V heads) ng, head dimension d; all tensors fp32 or all bf16, arithmetic in fp32.
// Work is split over (batch, group), results do not depend on the number of threads.
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

struct QkvTensors {
  core::Tensor q;  // [s, b, nh, d]
  core::Tensor k;  // [s, b, ng, d]
  core::Tensor v;  // [s, b, ng, d]
};

// packed: [s, b, ng * (nh/ng + 2) * d], each group its queries, then its key, then its value.
QkvTensors split_qkv(Context& context, const core::TensorView& packed, int64_t num_heads, int64_t num_groups,
                     int64_t head_dim);

// The inverse: dq [s, b, nh, d], dk and dv [s, b, ng, d] -> packed.
core::Tensor merge_qkv(Context& context, const core::TensorView& dq, const core::TensorView& dk,
                       const core::TensorView& dv);

struct AttentionResult {
  core::Tensor out;  // [s, b, nh, d]
  core::Tensor lse;  // fp32 [b, nh, s], log(sum(exp(scale * q.k))) of each row
};

// out = softmax(scale * q k^T, j <= i) v.
AttentionResult causal_attention(Context& context, const core::TensorView& q, const core::TensorView& k,
                                 const core::TensorView& v, double scale);

struct QkvGradients {
  core::Tensor dq, dk, dv;  // shapes and dtypes of q, k, v
};

// out, lse: what forward gave. P is recomputed tile by tile: dV = P^T dO, dS = P * (dO V^T - rowsum(dO * O)),
// dQ = scale dS K, dK = scale dS^T Q. Adds the flops of those four products to context.flops (causal: half), not of the
// recomputed scores: forward and backward count what the model needs (12 s^2 d a head, halved).
QkvGradients causal_attention_backward(Context& context, const core::TensorView& dout, const core::TensorView& q,
                                       const core::TensorView& k, const core::TensorView& v,
                                       const core::TensorView& out, const core::TensorView& lse, double scale);

}  // namespace ms::ops
