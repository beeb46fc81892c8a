// How far training had come, and by what settings, as a Megatron checkpoint says it beside its tensors.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "ckpt/layout.h"
#include "ckpt/source.h"
#include "convert/megatron/args.h"
#include "convert/torch/pickle.h"

namespace ms::convert {

// A truth value, a number or a text; null for anything else.
nlohmann::json plain_json(PickleValue value);

// state: the dictionary of model_optim_rng.pt, or of what torch_dist keeps unsharded. specs: of info.model, or none
// (param_groups.h). Sets iteration, and of `common` what is there of consumed_train_samples, opt_param_scheduler, step
// (the optimizer's), the optimizer's groups, and in `config`, where mstrain has its own, of the sequence length, the
// tokenizer and Adam's settings.
void add_megatron_progress(PickleValue state, const MegatronArgs& args, std::span<const ckpt::ParameterSpec> specs,
                           ckpt::CheckpointInfo& info);

// What an optimizer's dictionary says of its steps and settings, where it is kept apart from that of the state.
void add_megatron_optimizer(PickleValue optimizer, const MegatronArgs& args, std::span<const ckpt::ParameterSpec> specs,
                            ckpt::CheckpointInfo& info);

// The other way round. Members of args that are no part of the model; None for those that the checkpoint does not say.
MegatronArgList megatron_progress_args(const ckpt::CheckpointInfo& info);
// opt_param_scheduler; null if the checkpoint does not have all that Megatron wants to find in it.
nlohmann::json megatron_scheduler(const ckpt::CheckpointInfo& info);

}  // namespace ms::convert
