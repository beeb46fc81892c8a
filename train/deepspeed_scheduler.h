// The scheduler of a DeepSpeed configuration (deepspeed/runtime/lr_schedules.py): the settings of the learning rate's
// schedule that say the same here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace ms::train {

struct DeepspeedSetting {
  std::string key;          // "scheduler.params.warmup_num_steps"
  nlohmann::json given;     // its value
  bool is_default = false;  // of DeepSpeed: the file does not have the key
  std::string field;        // "lr_warmup_iters"
  nlohmann::json value;     // of that field
};

// scheduler: {"type": WarmupLR, WarmupDecayLR or WarmupCosineLR, "params": {..}}; a parameter that is "auto" leaves its
// field to the command line, as in transformers, and so does everything if all are. lr: the learning rate of the
// optimizer, of which WarmupCosineLR's bounds are shares; nullopt: not known. The warm-up is linear. A step's rate here
// is that of DeepSpeed's next step, whose first two are those of the start; in a cosine decay, of which DeepSpeed
// leaves out the first step, that of the same step (tests/train/make_deepspeed_schedules.py).
//
// Throws kInvalidArgument, beginning with `where`, for an unknown parameter, with the nearest known one, a value of
// another kind and a missing total_num_steps; kUnsupported for another type, and for a logarithmic warm-up, DeepSpeed's
// default, of more than the 2 steps that are its least.
std::vector<DeepspeedSetting> settings_of_deepspeed_scheduler(const nlohmann::json& scheduler, std::optional<double> lr,
                                                              std::string_view where);

}  // namespace ms::train
