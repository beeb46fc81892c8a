// A key of no value among those of each query, with a score of its own for each head: its share of the softmax is
// attention to nothing (Miller 2023, "Attention is off by one"; the sinks of gpt-oss; Megatron's softmax_offset in
// megatron/core/fusions/fused_softmax.py). What attention without it has given becomes what it is with it, so that any
// implementation of attention can have one.
//
// seq s, batch b, heads nh, d_v: of values.
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// out [s, b, nh, d_v] of fp32, bf16 or fp16, and lse fp32 [b, nh, s], of causal_attention(), become those of a softmax
// with the scores `sinks`, [nh] of any type; null: with a score of 0. With them causal_attention_backward() gives the
// gradients of q, k and v.
void add_attention_sink(Context& context, const core::TensorView& out, const core::TensorView& lse,
                        const core::TensorView* sinks);

// dsinks fp32 [nh] += the gradient of the sinks. dout: of out; out, lse: as add_attention_sink() has left them.
void attention_sink_gradient(Context& context, const core::TensorView& dout, const core::TensorView& out,
                             const core::TensorView& lse, const core::TensorView& sinks,
                             const core::TensorView& dsinks);

}  // namespace ms::ops
