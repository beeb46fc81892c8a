// Combines two partial attentions of the same queries over different keys (MindSpeed's npu_ring_attention_update): the
// step that ring attention performs for each block of keys it receives.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "train/ops/context.h"
#include "train/ops/fusion_attention.h"

namespace ms::ops {

// A result of fusion_attention: softmax_max and softmax_sum are fp32, for the rows and heads of out.
struct PartialAttention {
  core::TensorView out, softmax_max, softmax_sum;
};

// With M = max(m1, m2) and s = s1 e^(m1 - M) + s2 e^(m2 - M): out = (o1 s1 e^(m1 - M) + o2 s2 e^(m2 - M)) / s in one
// pass, rounded once. Both outs have one dtype: fp32, bf16 or fp16. This has no backward of its own: attention's
// backward takes the final max and sum.
// A row that has seen no key yet (max -inf) adds nothing, whatever its out contains; two such rows give 0, -inf and 0.
// layout: kSbh, with out [s, b, n * d] and statistics [b, n, s]; or kTnd, with out [t, n, d] and statistics [t, n], and
//   actual_seq_qlen, the ends of its sequences (a leading 0 is allowed, as MindSpeed passes it); for kTnd only.
// Throws kInvalidArgument for another layout, and for ends that decrease or do not end at t.
FusionAttentionResult ring_attention_update(Context& context, const PartialAttention& previous,
                                            const PartialAttention& current,
                                            AttentionLayout layout = AttentionLayout::kSbh,
                                            std::span<const int64_t> actual_seq_qlen = {});

}  // namespace ms::ops
