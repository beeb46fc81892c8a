// The schedule of learning rate and weight decay (ckpt/param_schedule.h) of a run, from its flags and, when it is
// resumed, from the checkpoint. The only number carried from step to step is how many samples updates were made with; a
// skipped step does not change it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ckpt/param_schedule.h"
#include "train/config.h"

namespace ms::train {

using ckpt::decoupled_schedule;
using ckpt::learning_rate;
using ckpt::ParamSchedule;
using ckpt::schedule_to_json;
using ckpt::weight_decay;

// What the flags say. config: resolved and validated.
ParamSchedule param_schedule(const TrainerConfig& config);

// The schedule of a continued run. saved: what schedule_to_json wrote; fields that it lacks are as given. Where the two
// differ in a way that changes a rate: use_checkpoint takes the saved value, override the given one, and with neither
// it is kInvalidArgument, as in Megatron: a schedule that moves under a run is seldom meant.
ParamSchedule continue_schedule(const ParamSchedule& given, const nlohmann::json& saved, bool override_saved,
                                bool use_checkpoint);

}  // namespace ms::train
