// Writes the pickles of a rank's files: the dictionaries that Megatron's load_checkpoint expects.
//
// Sources: megatron/training/checkpointing.py (generate_state_dict, load_checkpoint), megatron/core/optimizer/
// {optimizer,distrib_optimizer,optimizer_param_scheduler}.py.
#pragma once

#include <string>
#include <vector>

#include "convert/megatron/stage_plan.h"
#include "convert/megatron/target_state.h"

namespace ms::convert {

// Returns the pickle of model_optim_rng.pt. last: for the last stage, whose last chunk has the output layer's entries.
std::string model_pickle(const MegatronTargetState& state, const StagePlan& plan, bool last);
// Returns the pickle of distrib_optim.pt. held: for each of plan.optimizers, whether the rank stores its state; the
// storages of the stored ones are consecutive.
std::string optimizer_pickle(const StagePlan& plan, const std::vector<bool>& held);

}  // namespace ms::convert
