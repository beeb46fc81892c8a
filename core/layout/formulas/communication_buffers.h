// The buffers that the reductions of a step receive into.
#pragma once

#include <cstdint>

#include "core/layout/training_step.h"

namespace ms::layout {

// Bytes of a rank: the largest receive buffer of the reductions (core/comm/detail/collectives.cpp), and the buffer in
// which the optimizer collects partial gradients (train/optim/optimizer.cpp).
int64_t communication_buffer_bytes(const TrainingStep& step, int rank);

}  // namespace ms::layout
