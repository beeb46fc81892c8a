// The pickles of a rank's files: the dictionaries that Megatron's load_checkpoint expects.
//
// Sources: megatron/training/checkpointing.py (generate_state_dict, load_checkpoint), megatron/core/optimizer/
// {optimizer,distrib_optimizer,optimizer_param_scheduler}.py.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "convert/megatron/args.h"
#include "convert/megatron/progress.h"
#include "convert/megatron/stage_plan.h"

namespace ms::convert {

// What is the same on all ranks.
struct MegatronTreeState {
  int64_t iteration = 0;
  MegatronArgList args;
  MegatronArgsForm args_form = MegatronArgsForm::kNamespace;
  MegatronNaming naming = MegatronNaming::kLocal;
  MegatronOptimizerForm optimizer = MegatronOptimizerForm::kNone;
  int64_t step = 0;
  AdamSettings adam;
  nlohmann::json scheduler;  // opt_param_scheduler, complete; null: none
};

// Of model_optim_rng.pt. last: of the last stage, whose last chunk has the output layer's entries.
std::string model_pickle(const MegatronTreeState& state, const StagePlan& plan, bool last);
// Of distrib_optim.pt.
std::string optimizer_pickle(const StagePlan& plan);

}  // namespace ms::convert
