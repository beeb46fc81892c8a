// Memory of a rank beside parameters, activations and messages, tag `tmp` (core/arena.h): what lasts, and the largest
// that an operation has while it runs.
#pragma once

#include <cstdint>

#include "core/layout/training_step.h"

namespace ms::layout {

// Bytes of the tables of cosines and sines, fp32 of each position and pair of elements: two tables with
// --rotary-base-local.
int64_t rotary_table_bytes(const TrainingStep& step);

// Bytes that attention packs keys, values and their gradients in, on all threads of a rank: the most of a layer of the
// stage (kernels/attention.h). Exact for whole causal samples, otherwise an upper bound.
int64_t attention_workspace_bytes(const TrainingStep& step, int stage);

}  // namespace ms::layout
