// Two attentions of the same queries over different keys, made one (features.md 10, item 11; MindSpeed's
// npu_ring_attention_update): what ring attention does with each block of keys that arrives.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "train/ops/context.h"
#include "train/ops/fusion_attention.h"

namespace ms::ops {

// As fusion_attention gives it: softmax_max and softmax_sum fp32, of out's rows and heads.
struct PartialAttention {
  core::TensorView out, softmax_max, softmax_sum;
};

// With M = max(m1, m2) and s = s1 e^(m1 - M) + s2 e^(m2 - M): out = (o1 s1 e^(m1 - M) + o2 s2 e^(m2 - M)) / s in one
// pass, rounded once. Both outs are fp32, bf16 or fp16 alike. Backward takes the last max and sum; this has none of its
// own.
// A row that saw no key yet (max -inf) adds nothing, whatever its out holds; two of them give 0, -inf and 0.
// layout: kSbh, out [s, b, n * d] and statistics [b, n, s]; or kTnd, out [t, n, d] and statistics [t, n], with
//   actual_seq_qlen, the ends of its sequences (a 0 may stand before them, as MindSpeed passes it), for kTnd alone.
// Throws kInvalidArgument for another layout, and for ends that fall or do not end at t.
FusionAttentionResult ring_attention_update(Context& context, const PartialAttention& previous,
                                            const PartialAttention& current,
                                            AttentionLayout layout = AttentionLayout::kSbh,
                                            std::span<const int64_t> actual_seq_qlen = {});

}  // namespace ms::ops
