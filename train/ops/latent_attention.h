// The tensors of multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1) between its projections
// and core attention: keys and values of all heads come from one low-rank vector of each position, and a part of each
// key, which is rotated, is shared by all heads.
//
// seq s, batch b, heads nh on this rank; of a head d_nope elements are its own, d_rope shared, d_v those of its value.
#pragma once

#include <cstdint>
#include <utility>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// x [.., n] -> copies of its first columns, [.., first], and of the rest.
std::pair<core::Tensor, core::Tensor> split_columns(Context& context, const core::TensorView& x, int64_t first);
// The inverse. a and b: the same but for the last axis.
core::Tensor join_columns(Context& context, const core::TensorView& a, const core::TensorView& b);

struct LatentKeyValues {
  core::Tensor k;  // [s, b, nh, d_nope + d_rope]
  core::Tensor v;  // [s, b, nh, d_v]
};
// kv [s, b, nh * (d_nope + d_v)]: of each head its part of the key, then its value (Megatron's linear_kv_up_proj).
// shared [s, b, d_rope]: the end of every head's key.
LatentKeyValues split_latent(Context& context, const core::TensorView& kv, const core::TensorView& shared,
                             int64_t num_heads, int64_t d_v);

struct LatentGradients {
  core::Tensor dkv;      // [s, b, nh * (d_nope + d_v)]
  core::Tensor dshared;  // [s, b, d_rope]: the sum over heads, in their order, in fp32, rounded once
};
LatentGradients merge_latent(Context& context, const core::TensorView& dk, const core::TensorView& dv, int64_t d_rope);

}  // namespace ms::ops
