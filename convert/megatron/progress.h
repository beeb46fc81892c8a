// How far training had come, as a Megatron checkpoint says it beside its tensors.
#pragma once

#include "ckpt/source.h"
#include "convert/megatron/args.h"
#include "convert/torch/pickle.h"

namespace ms::convert {

// state: the dictionary of model_optim_rng.pt, or of what torch_dist keeps unsharded. Sets iteration, and of `common`
// what is there of consumed_train_samples, opt_param_scheduler and step (the optimizer's).
void add_megatron_progress(PickleValue state, const MegatronArgs& args, ckpt::CheckpointInfo& info);

}  // namespace ms::convert
