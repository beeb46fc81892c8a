// What a Megatron checkpoint that is to be written holds besides its tensors, in either of its formats: args, how far
// training had come, the optimizer's settings; and the name under which it appears.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
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

namespace ms::convert {

struct MegatronTargetState {
  int64_t iteration = 0;
  MegatronArgList args;
  MegatronArgsForm args_form = MegatronArgsForm::kNamespace;
  MegatronNaming naming = MegatronNaming::kLocal;
  MegatronOptimizerForm optimizer = MegatronOptimizerForm::kNone;
  int64_t step = 0;
  ckpt::OptimizerGroup decayed, other;  // the groups of matrices, and of vectors and biases
  nlohmann::json scheduler;             // opt_param_scheduler, complete; null: none, without optimizer state
};

// The element type of a canonical parameter's weights in the target.
using WeightDType = std::function<core::DType(const std::string& key)>;

// Cut as options.layout says, latent attention's projections down as by the layers whose names are asked for; without
// chunks. Throws kInvalidArgument for a layout that the model cannot have.
MegatronModel megatron_target_model(const ckpt::Source& source, const MegatronTargetOptions& options);

// Appends to `decisions` what is not simply copied. Throws kUnsupported for optimizer state that is not Adam's, or not
// of all parameters, or that Megatron could not load or continue: without betas and epsilon, or a schedule of the
// learning rate. A source whose rate no scheduler moved has a constant one.
MegatronTargetState plan_target_state(const ckpt::Source& source, const MegatronTargetOptions& options,
                                      const MegatronModel& model, const WeightDType& dtype,
                                      std::vector<std::string>& decisions);

// The role in the source that a tensor of the target is filled from: an fp32 model's weights are its masters, for
// Megatron as for us.
core::TensorRole filled_from(const ckpt::Source& source, bool with_optimizer, const std::string& key,
                             core::TensorRole role, core::DType dtype);

// Sets the folder, iter_0000100 or release, and the tracker that follows it. Throws kInvalidArgument if it is there
// already.
void place_iteration(const MegatronTargetOptions& options, int64_t iteration, ArchiveSinkOptions& sink);

}  // namespace ms::convert
