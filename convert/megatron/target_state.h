// Plans what a Megatron checkpoint to be written holds besides tensors, in either format: args, training progress,
// optimizer settings, and the name of its folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/optimizer_settings.h"
#include "ckpt/source.h"
#include "convert/megatron/args.h"
#include "convert/megatron/model.h"
#include "convert/megatron/names.h"
#include "convert/megatron/progress.h"
#include "convert/megatron/stage_plan.h"
#include "convert/megatron_target.h"
#include "convert/torch/archive_sink.h"
#include "core/io/json.h"

namespace ms::convert {

struct MegatronTargetState {
  int64_t iteration = 0;
  MegatronArgList args;
  MegatronArgsForm args_form = MegatronArgsForm::kNamespace;
  MegatronNaming naming = MegatronNaming::kLocal;
  MegatronOptimizerForm optimizer = MegatronOptimizerForm::kNone;
  int64_t step = 0;
  ckpt::OptimizerGroup decayed, other;  // groups of matrices; of vectors and biases
  nlohmann::json scheduler;             // opt_param_scheduler, complete; null without optimizer state
};

// The dtype of a canonical parameter's weights in the target.
using WeightDType = std::function<core::DType(const std::string& key)>;

// Returns the model cut by options.layout, without chunks; latent attention's down projections are cut as in the layers
// whose naming is requested. Throws kInvalidArgument for a layout that the model cannot have.
MegatronModel megatron_target_model(const ckpt::Source& source, const MegatronTargetOptions& options);

// Appends to `decisions` whatever is not simply copied. Throws kUnsupported for optimizer state that is not Adam's,
// does not cover all parameters, or that Megatron could not load or continue: without betas and epsilon, or without a
// learning rate schedule. A source whose rate no scheduler has changed has a constant schedule.
MegatronTargetState plan_target_state(const ckpt::Source& source, const MegatronTargetOptions& options,
                                      const MegatronModel& model, const WeightDType& dtype,
                                      std::vector<std::string>& decisions);

// Returns the role in the source that fills a target tensor: the weights of an fp32 model are its master weights, in
// Megatron as in our checkpoints.
core::TensorRole filled_from(const ckpt::Source& source, bool with_optimizer, const std::string& key,
                             core::TensorRole role, core::DType dtype);

// Sets the folder, iter_0000100 or release, and its tracker. Throws kInvalidArgument if the folder exists.
void place_iteration(const MegatronTargetOptions& options, int64_t iteration, ArchiveSinkOptions& sink);

}  // namespace ms::convert
