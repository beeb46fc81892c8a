// Lookup in the embedding table (or this rank's slice of the vocabulary), learned position embeddings, and their
// gradients.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// Returns [n, h] in weight's dtype: row i is weight[ids[i] - first_id], or zeros if that is outside [0, rows). Such an
// id belongs to another tensor-parallel rank, and an allreduce of the results completes the lookup. weight: [rows, h].
core::Tensor embedding(Context& context, std::span<const int32_t> ids, const core::TensorView& weight,
                       int64_t first_id);

// main_grad[ids[i] - first_id] += dy[i] for the ids of this slice, in the order of i, so results do not depend on the
// number of threads.
// dy: [n, h] fp32 or bf16; main_grad: fp32 [rows, h].
void embedding_backward(Context& context, std::span<const int32_t> ids, const core::TensorView& dy,
                        const core::TensorView& main_grad, int64_t first_id);

// hidden[s, b] += table[first_position + s]. hidden: [seq, batch, h], table: [positions, h] of its dtype.
void add_position_embedding(Context& context, const core::TensorView& hidden, const core::TensorView& table,
                            int64_t first_position);

// hidden[s, b] += table[positions[s * batch + b]]. The gradient is embedding_backward's, with the positions as ids.
void add_position_embedding(Context& context, const core::TensorView& hidden, const core::TensorView& table,
                            std::span<const int32_t> positions);

// main_grad[first_position + s] += sum over the batch of dhidden[s, b], added in the order of b. main_grad: fp32
// [positions, h].
void position_embedding_backward(Context& context, const core::TensorView& dhidden, const core::TensorView& main_grad,
                                 int64_t first_position);

}  // namespace ms::ops
