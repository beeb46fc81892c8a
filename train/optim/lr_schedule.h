// Learning rate as a function of the iteration alone (megatron/core/optimizer_param_scheduler.py), so that a resumed
// run needs no state.
#pragma once

#include <cstdint>

#include "train/config.h"

namespace ms::train {

// completed: steps done before this one (0 for the first, which with warm-up has lr_warmup_init, as in Megatron).
// Warm-up is linear to lr over lr_warmup_iters; then constant, linear or half a cosine to min_lr at lr_decay_iters.
double learning_rate(const OptimizerConfig& optimizer, const SchedulerConfig& scheduler, int64_t completed);

}  // namespace ms::train
