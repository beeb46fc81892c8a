// Attention over any layout, mask and position bias: torch_npu's npu_fusion_attention and its v2 (features.md 10, item
// 3), in tiles and O(sequence) memory (kernels/attention.h). Masks are described, not passed: of sparse modes 2 to 8 no
// array exists, and what they hide is not computed.
//
// Sequences b, queries sq, keys skv, query heads n, key and value heads ng (n is their multiple), head dimension d. All
// of q, k, v and dout are fp32, bf16 or fp16 alike; arithmetic is fp32. Work is split over sequences and heads; results
// do not depend on the number of threads.
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
  kTnd,   // [t, n, d]: sequences of their own lengths, one behind the other
};

// The numbers are torch_npu's. Query i and key j count from the start of their sequence; "right down" moves i so that
// the last query stands beside the last key.
enum class SparseMode : uint8_t {
  kDefaultMask = 0,       // i - pre_tokens <= j <= i + next_tokens, and not hidden by atten_mask, if there is one
  kAllMask = 1,           // not hidden by atten_mask
  kLeftUpCausal = 2,      // j <= i
  kRightDownCausal = 3,   // j <= i + skv - sq
  kBand = 4,              // right down, i - pre_tokens <= j <= i + next_tokens
  kPrefix = 5,            // right down causal, and the first prefix[b] keys; not in kTnd
  kPrefixCompressed = 6,  // the same
  // Sequences that were cut over ranks, kTnd alone: the last one that is not empty (7) or the first (8) sees a band,
  // the others are right-down (7) or left-up (8) causal.
  kRightDownCausalBand = 7,
  kBandLeftUpCausal = 8,
};

// The numbers are torch_npu's pse_type.
enum class PositionBias : uint8_t {
  kAfterScale = 0,   // scale q k^T + pse
  kBeforeScale = 1,  // scale (q k^T + pse)
  kAlibi = 2,        // scale q k^T - slope |i + q_start_idx - j - kv_start_idx|
  kAlibiRoot = 3,    // .. of the square root of that distance
};

struct FusionAttentionRule {
  int64_t head_num = 1;  // n
  AttentionLayout layout = AttentionLayout::kBsh;
  double scale = 1;
  SparseMode sparse_mode = SparseMode::kDefaultMask;
  // Of modes 0, 4, 7 and 8; the default reaches over everything.
  int64_t pre_tokens = 2147483647, next_tokens = 2147483647;
  std::span<const int64_t> prefix;  // [b], of modes 5 and 6
  // uint8 or bool, 1: hidden; [sq, skv], [b, 1, sq, skv] or [b, n, sq, skv]; of modes 0 and 1. In kTnd [sq, skv] of the
  // longest sequences, of which each takes what it needs.
  const core::TensorView* atten_mask = nullptr;
  // fp32: [b or 1, n, sq or 1, skv], not in kTnd; of ALiBi slopes, [n] or [b, n].
  const core::TensorView* pse = nullptr;
  PositionBias pse_type = PositionBias::kBeforeScale;
  int64_t q_start_idx = 0, kv_start_idx = 0;
  std::span<const int64_t> actual_seq_qlen, actual_seq_kvlen;  // of kTnd: where sequences end in q, and in k and v
  kernels::Dropout dropout;  // of the probabilities; torch_npu's 1 - keep_prob. Masks are a function of key, sequence,
                             // head, query and key position: there is no generator's state to return
};

struct FusionAttentionResult {
  core::Tensor out;          // shape and dtype of q; 0 for a query that sees no key
  core::Tensor softmax_max;  // fp32 [b, n, sq], in kTnd [t, n]: the greatest score; -inf for such a query
  core::Tensor softmax_sum;  // of exp(score - max); 0 for such a query
};

// out = dropout(softmax(mask(scores))) v. Adds the flops of the scores that are seen to context.flops (a mask's array
// hides none of them).
// Throws kInvalidArgument for options that do not go together, and for shapes that they do not fit.
FusionAttentionResult fusion_attention(Context& context, const core::TensorView& q, const core::TensorView& k,
                                       const core::TensorView& v, const FusionAttentionRule& rule);

// forward: what it gave for the same rule. Gradients have the shapes of q, k and v.
//
// dpse: receives the gradient of rule.pse if it is not null, fp32 of pse's shape. With dS = P (dP - rowsum(dO O)), 0
//   where nothing is seen, it is dS for kAfterScale and scale dS for kBeforeScale, summed over the sequences and the
//   queries that share a number, in their order. Where sequences share it, threads take heads alone.
// Throws kInvalidArgument for a dpse without pse, or of slopes, which are not trained.
QkvGradients fusion_attention_backward(Context& context, const core::TensorView& dout, const core::TensorView& q,
                                       const core::TensorView& k, const core::TensorView& v,
                                       const FusionAttentionResult& forward, const FusionAttentionRule& rule,
                                       core::Tensor* dpse = nullptr);

}  // namespace ms::ops
