// The pickles of a rank's files: the dictionaries that Megatron's load_checkpoint expects.
//
// Sources: megatron/training/checkpointing.py (generate_state_dict, load_checkpoint), megatron/core/optimizer/
// {optimizer,distrib_optimizer,optimizer_param_scheduler}.py.
#pragma once

#include <string>
#include <vector>

#include "convert/megatron/stage_plan.h"
#include "convert/megatron/target_state.h"

namespace ms::convert {

// Of model_optim_rng.pt. last: of the last stage, whose last chunk has the output layer's entries.
std::string model_pickle(const MegatronTargetState& state, const StagePlan& plan, bool last);
// Of distrib_optim.pt. held: of each of plan.optimizers, whether the rank keeps its state; the storages of those that
// it does follow one another.
std::string optimizer_pickle(const StagePlan& plan, const std::vector<bool>& held);

}  // namespace ms::convert
