// Dropout of hidden states. Masks depend only on the sample, its position and the place in the model, so that no
// layout, recomputation or order of work changes them (kernels/dropout.h).
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "kernels/dropout.h"
#include "train/ops/context.h"

namespace ms::ops {

using kernels::Dropout;

// x [seq, batch, h] *= mask / (1 - probability), in place; the gradient is the same function. fp32, bf16 or fp16.
// first_position: position of row 0 in the sequence (not 0 on a sequence-parallel rank). samples: [batch], the samples'
// numbers in the run.
void dropout_inplace(Context& context, const core::TensorView& x, const Dropout& dropout, int64_t first_position,
                     std::span<const int64_t> samples);

}  // namespace ms::ops
