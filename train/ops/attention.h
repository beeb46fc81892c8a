// Causal self-attention in tiles (Dao et al. 2022, 2023): exact softmax, O(seq) memory, grouped queries without copies
// of K and V; and the conversion from and to the packed Q, K, V that Megatron's linear_qkv writes.
//
// seq s, batch b, heads nh, groups (K/V heads) ng, head dimension d of q and k, d_v of v and out. Tensors are fp32,
// bf16 or fp16, arithmetic is fp32. Work is split over (batch, group); results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "train/ops/context.h"

namespace ms::ops {

struct QkvTensors {
  core::Tensor q;          // [s, b, nh, d]
  core::Tensor k;          // [s, b, ng, d]
  core::Tensor v;          // [s, b, ng, d_v]
  core::Tensor gate = {};  // of an output gate: [s, b, nh, d_v]; else undefined
};

// packed: [s, b, ng * (nh/ng + 2) * d]; each group stores its queries, then its key, then its value. d_v = d. has_gate:
// [s, b, ng * (2 nh/ng + 2) * d], with as many gates behind the queries.
QkvTensors split_qkv(Context& context, const core::TensorView& packed, int64_t num_heads, int64_t num_groups,
                     int64_t head_dim, bool has_gate = false);

// The inverse: dq and dgate [s, b, nh, d], dk and dv [s, b, ng, d] -> packed. dgate: null without a gate.
core::Tensor merge_qkv(Context& context, const core::TensorView& dq, const core::TensorView& dk,
                       const core::TensorView& dv, const core::TensorView* dgate = nullptr);

// What is applied between q k^T and the product with v.
struct AttentionParams {
  double scale = 1;    // factor of q k^T
  double softcap = 0;  // s -> softcap * tanh(s / softcap) (Gemma 2); 0: none
  int64_t window = 0;  // keys that a query sees, itself included (Mistral's sliding_window); 0: all before it
  int64_t prefix = 0;  // keys that every query of a sample sees; not with window, slopes or document_ends
  // What queries of each sample see, in place of the keys up to their own; not with window, prefix or document_ends. A
  // query without any has the result 0.
  kernels::VisibleRuns runs;
  kernels::Dropout dropout;  // of the probabilities; each head has its own key, counted from head 0 of the model
  int64_t first_head = 0;    // index in the model of this rank's first head, for dropout and slopes
  // ALiBi: of each head of the model, s -> s - slope * (i - j) of query i and key j. Empty: none. Not with softcap.
  std::vector<float> alibi_slopes;
  std::span<const int64_t> samples;  // [batch], the samples' numbers in the run, for dropout
  // Where the documents of packed samples end, in the order of the samples: b * s + the position behind the document's
  // last one, so that each sample's last end is (b + 1) * s. A query sees the keys of its own document only. Empty:
  // each sample is one document.
  std::span<const int64_t> document_ends;
};

// The slopes of Press et al. 2022 (arXiv 2108.12409): 2^(-8 k / heads), k = 1 .. heads; where heads is no power of two,
// those of the power below, and every second one of the power above, as in its authors' code.
std::vector<float> alibi_slopes(int64_t heads);

struct AttentionResult {
  core::Tensor out;  // [s, b, nh, d_v]
  core::Tensor lse;  // fp32 [b, nh, s], log(sum(exp(score))) of each row
};

// out = dropout(softmax(softcap(scale * q k^T), i - window < j <= i or j < prefix, j in i's document)) v, or over what
// runs say. Time is that of the visible scores. Throws kInvalidArgument for document_ends that are not such a list.
AttentionResult causal_attention(Context& context, const core::TensorView& q, const core::TensorView& k,
                                 const core::TensorView& v, const AttentionParams& params);

struct QkvGradients {
  core::Tensor dq, dk, dv;  // shapes and dtypes of q, k, v
};

// out, lse: the results of forward for the same parameters. P is recomputed tile by tile, and with it the dropout
// factors F: dV = (P F)^T dO, dS = P * (F dO V^T - rowsum(dO * O)) * softcap', dQ = scale dS K, dK = scale dS^T Q. Adds
// the FLOPs of those four products to context.flops, not those of the recomputed scores, so that forward and backward
// count what the model needs: 6 s^2 (d + d_v) per head, halved by causality; 6 w (s - w / 2) (d + d_v) with a window of
// w < s keys; with a prefix of p, 3 p^2 (d + d_v) more; where samples are packed, the sum of that over their documents
// of s tokens each; with runs, 12 of each visible score, half of that for a query's own key if they are causal.
QkvGradients causal_attention_backward(Context& context, const core::TensorView& dout, const core::TensorView& q,
                                       const core::TensorView& k, const core::TensorView& v,
                                       const core::TensorView& out, const core::TensorView& lse,
                                       const AttentionParams& params);

}  // namespace ms::ops
