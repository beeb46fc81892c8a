// Dropout of hidden states, with masks that depend on the sample, its position and the place in the model alone, so
// that no layout, recomputation or order of work changes them (kernels/dropout.h; features.md G5).
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "kernels/dropout.h"
#include "train/ops/context.h"

namespace ms::ops {

using kernels::Dropout;

// x [seq, batch, h] *= mask / (1 - probability), in place; its own gradient. fp32, bf16 or fp16.
// first_position: of row 0 in the sequence (a sequence-parallel rank's part). samples: [batch], the samples' numbers in
// the run.
void dropout_inplace(Context& context, const core::TensorView& x, const Dropout& dropout, int64_t first_position,
                     std::span<const int64_t> samples);

}  // namespace ms::ops
