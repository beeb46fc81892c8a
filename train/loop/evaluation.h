// The loss of a held-out set.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/comm/communicator.h"
#include "core/function_ref.h"
#include "train/config.h"
#include "train/data/sampler.h"
#include "train/loop/step.h"

namespace ms::train {

// The mean over --eval-iters batches of --eval-global-batch-size samples, the first of which begins at sample `first`.
// read: this rank's micro-batches of so many samples from one on. goes_on: asked after each batch; where it says no,
// the result is nullopt. Collective.
std::optional<double> evaluation_loss(const TrainerConfig& config, StepRunner& runner, int64_t first,
                                      core::FunctionRef<const std::vector<Microbatch>&(int64_t, int64_t)> read,
                                      core::FunctionRef<bool()> goes_on);

// Of a run that only evaluates, whose result the loss is: throws kInvalidArgument on all ranks if it is not finite,
// unless --no-check-for-nan-in-loss-and-grad. (A run that trains ends by its own loss.)
void require_finite_result(const TrainerConfig& config, core::Communicator& world, double loss, int64_t iteration);

}  // namespace ms::train
