// The checks of TrainerConfig::resolve_and_validate that are of one part of the configuration. All throw
// kInvalidArgument, naming the flags. trains: the run takes steps.
#pragma once

#include "train/config.h"

namespace ms::train {

void validate_ranks(const ModelParallelConfig& parallel, int world_size);
void validate_positions(const TrainingConfig& training, const core::TransformerConfig& model);
void validate_schedule(const TrainingConfig& training, const SchedulerConfig& scheduler,
                       const OptimizerConfig& optimizer, const BatchSizeSchedule& batch_sizes, bool trains);
void validate_steps(const TrainingConfig& training);
void validate_saving(const CheckpointConfig& checkpoint);
void validate_optimizer(const OptimizerConfig& optimizer, const core::TransformerConfig& model, bool trains);
// Warns of --sgd-momentum without SGD, and of what is Adam's with it.
void warn_of_other_optimizer(const OptimizerConfig& optimizer);
// Warns of flags of rotary embedding without it.
void warn_of_other_positions(const core::TransformerConfig& model);
void validate_logger(const LoggerConfig& logger);
// batch_size: of an evaluation.
void validate_evaluation(const TrainingConfig& training, int64_t batch_size);

}  // namespace ms::train
