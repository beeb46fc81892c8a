// Reads and writes the training progress and settings that a Megatron checkpoint stores besides tensors.
#pragma once

#include <span>

#include "ckpt/source.h"
#include "convert/megatron/args.h"
#include "convert/torch/pickle.h"
#include "core/io/json.h"
#include "core/layout/parameter_specs.h"

namespace ms::convert {

// Converts a boolean, number or string to JSON; null for anything else.
nlohmann::json plain_json(PickleValue value);

// state: the dictionary of model_optim_rng.pt, or the unsharded state of torch_dist. specs: of info.model, or empty
// (param_groups.h). Sets iteration; in `common`, where present, consumed_train_samples, opt_param_scheduler, step (the
// optimizer's) and the optimizer's groups; and in `config`, under mstrain's names, sequence length, tokenizer and
// Adam's settings.
void add_megatron_progress(PickleValue state, const MegatronArgs& args, std::span<const layout::ParameterSpec> specs,
                           ckpt::CheckpointInfo& info);

// Adds steps and settings from an optimizer's dictionary that is stored separately.
void add_megatron_optimizer(PickleValue optimizer, const MegatronArgs& args,
                            std::span<const layout::ParameterSpec> specs, ckpt::CheckpointInfo& info);

// The inverse: the args members that are not part of the model; None for those that the checkpoint does not have.
MegatronArgList megatron_progress_args(const ckpt::CheckpointInfo& info);
// Returns opt_param_scheduler; null if the checkpoint lacks any member that Megatron requires.
nlohmann::json megatron_scheduler(const ckpt::CheckpointInfo& info);

}  // namespace ms::convert
