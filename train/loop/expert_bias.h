// The biases of routers, which even the load of experts without a loss (DeepSeek-V3, arXiv 2412.19437, section 2.1.2;
// get_updated_expert_bias, megatron/core/transformer/moe/moe_utils.py).
#pragma once

#include "train/loop/expert_load.h"
#include "train/model/parameters.h"

namespace ms::train {

// Adds rate to the bias of each expert that had less than the mean of its layer's tokens in a step, and takes it from
// that of each that had more. loads: of all ranks, so that the biases stay the same on all.
void update_expert_biases(const ParameterStore& parameters, const ExpertLoads& loads, double rate);

}  // namespace ms::train
