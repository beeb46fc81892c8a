// Copies that divide the heads of a tensor into parts, and put them together: before and behind an all-to-all between
// ranks that have some positions of all heads and ranks that have all positions of some
// (train/parallel/head_exchange.h). fp32, bf16 or fp16.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// x [s, b, n, d] -> [parts * s, b, n * copies / parts, d]: part p, rows p * s on, has the heads from p * n * copies /
// parts on, where each head of x counts `copies` times. n * copies is a multiple of parts.
core::Tensor split_heads(Context& context, const core::TensorView& x, int64_t parts, int64_t copies);

// The inverse: x [parts * s, b, m, d] -> [s, b, m * parts / copies, d]. Copies of a head are added in their order, in
// fp32, and rounded once: the gradient of split_heads.
core::Tensor join_heads(Context& context, const core::TensorView& x, int64_t parts, int64_t copies);

}  // namespace ms::ops
