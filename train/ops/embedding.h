// Lookup in (a vocabulary slice of) the embedding table, and its gradient.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// Returns [n, h] in weight's dtype: row i is weight[ids[i] - first_id], or zeros where that is outside [0, rows): the
// id belongs to another tensor-parallel rank, and an allreduce completes the sum. weight: [rows, h].
core::Tensor embedding(Context& context, std::span<const int32_t> ids, const core::TensorView& weight,
                       int64_t first_id);

// main_grad[ids[i] - first_id] += dy[i], for ids of this slice, in the order of i: equal for any number of threads.
// dy: [n, h] fp32 or bf16; main_grad: fp32 [rows, h].
void embedding_backward(Context& context, std::span<const int32_t> ids, const core::TensorView& dy,
                        const core::TensorView& main_grad, int64_t first_id);

}  // namespace ms::ops
