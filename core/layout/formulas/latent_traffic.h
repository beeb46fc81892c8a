// What latent attention sends over TP in place of the hidden state, per layer and micro-batch: the calls of
// train/model/multi_latent_attention.cpp. Without TP none.
#pragma once

#include <cstdint>

#include "core/comm/comm_op.h"
#include "core/function_ref.h"
#include "core/layout/training_step.h"

namespace ms::layout {

using AddTpTraffic = core::FunctionRef<void(core::CommOp, int64_t payload_bytes)>;

void add_latent_forward(const TrainingStep& step, const AddTpTraffic& add);
// The up projections alone, run again.
void add_latent_recompute(const TrainingStep& step, const AddTpTraffic& add);
void add_latent_backward(const TrainingStep& step, int64_t layer, const AddTpTraffic& add);

}  // namespace ms::layout
