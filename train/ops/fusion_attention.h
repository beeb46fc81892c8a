// Attention with any layout, mask and position bias: torch_npu's npu_fusion_attention and its v2, computed in tiles
// with O(sequence) memory (kernels/attention.h). Masks of sparse modes 2 to 8 are described by numbers, not by an
// array, and what they hide is not computed.
//
// Sequences b, queries sq, keys skv, query heads n, key and value heads ng (n is a multiple of ng), head dimension d.
// q, k, v and dout have one dtype: fp32, bf16 or fp16; arithmetic is fp32. Work is split over sequences and heads;
// results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "kernels/dropout.h"
#include "train/ops/attention.h"
#include "train/ops/context.h"

namespace ms::ops {

enum class AttentionLayout : uint8_t {
  kBsh,   // [b, s, n * d]
  kSbh,   // [s, b, n * d]
  kBsnd,  // [b, s, n, d]
  kBnsd,  // [b, n, s, d]
  kTnd,   // [t, n, d]: sequences of different lengths, concatenated
};

// The values are torch_npu's. Query i and key j count from the start of their sequence. "Right down" shifts i so that
// the last query is aligned with the last key.
enum class SparseMode : uint8_t {
  kDefaultMask = 0,       // i - pre_tokens <= j <= i + next_tokens, and not hidden by atten_mask, if there is one
  kAllMask = 1,           // not hidden by atten_mask
  kLeftUpCausal = 2,      // j <= i
  kRightDownCausal = 3,   // j <= i + skv - sq
  kBand = 4,              // right down, i - pre_tokens <= j <= i + next_tokens
  kPrefix = 5,            // right down causal, plus the first prefix[b] keys; not in kTnd
  kPrefixCompressed = 6,  // same as kPrefix
  // For sequences that were cut over ranks, kTnd only: the last non-empty sequence (7), or the first (8), uses a band;
  // the others are right-down causal (7) or left-up causal (8).
  kRightDownCausalBand = 7,
  kBandLeftUpCausal = 8,
};

// The values are torch_npu's pse_type.
enum class PositionBias : uint8_t {
  kAfterScale = 0,   // scale q k^T + pse
  kBeforeScale = 1,  // scale (q k^T + pse)
  kAlibi = 2,        // scale q k^T - slope |i + q_start_idx - j - kv_start_idx|
  kAlibiRoot = 3,    // same, with the square root of that distance
};

struct FusionAttentionParams {
  int64_t head_num = 1;  // n
  AttentionLayout layout = AttentionLayout::kBsh;
  double scale = 1;
  SparseMode sparse_mode = SparseMode::kDefaultMask;
  // For modes 0, 4, 7 and 8; the default covers everything.
  int64_t pre_tokens = 2147483647, next_tokens = 2147483647;
  std::span<const int64_t> prefix;  // [b], for modes 5 and 6
  // uint8 or bool, 1: hidden; [sq, skv], [b, 1, sq, skv] or [b, n, sq, skv]; for modes 0 and 1. In kTnd it is [sq, skv]
  // of the longest sequences; each sequence uses the part it needs.
  const core::TensorView* atten_mask = nullptr;
  // fp32: [b or 1, n, sq or 1, skv], not in kTnd; ALiBi slopes are [n] or [b, n].
  const core::TensorView* pse = nullptr;
  PositionBias pse_type = PositionBias::kBeforeScale;
  int64_t q_start_idx = 0, kv_start_idx = 0;
  std::span<const int64_t> actual_seq_qlen,
      actual_seq_kvlen;      // for kTnd: the ends of the sequences in q, and in k and v
  kernels::Dropout dropout;  // of the probabilities (1 - torch_npu's keep_prob). Masks are a function of key, sequence,
                             // head, query and key position: no generator state is returned
};

struct FusionAttentionResult {
  core::Tensor out;          // shape and dtype of q; 0 for a query that sees no key
  core::Tensor softmax_max;  // fp32 [b, n, sq], in kTnd [t, n]: the largest score; -inf for a query that sees no key
  core::Tensor softmax_sum;  // sum of exp(score - max); 0 for a query that sees no key
};

// out = dropout(softmax(mask(scores))) v. Adds the FLOPs of the visible scores to context.flops (scores hidden by
// atten_mask are counted).
// Throws kInvalidArgument for options that exclude each other, and for shapes that do not fit them.
FusionAttentionResult fusion_attention(Context& context, const core::TensorView& q, const core::TensorView& k,
                                       const core::TensorView& v, const FusionAttentionParams& params);

// forward: its result for the same parameters. Gradients have the shapes of q, k and v.
//
// dpse: if not null, receives the gradient of params.pse, fp32 in pse's shape. With dS = P (dP - rowsum(dO O)), 0 for
// hidden scores, it is dS for kAfterScale and scale dS for kBeforeScale, summed in order over the sequences and queries
// that share an element of pse. If sequences share it, threads are split over heads only.
// Throws kInvalidArgument for a dpse without pse, or for ALiBi slopes, which are not trained.
QkvGradients fusion_attention_backward(Context& context, const core::TensorView& dout, const core::TensorView& q,
                                       const core::TensorView& k, const core::TensorView& v,
                                       const FusionAttentionResult& forward, const FusionAttentionParams& params,
                                       core::Tensor* dpse = nullptr);

}  // namespace ms::ops
