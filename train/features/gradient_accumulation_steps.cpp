#include "train/features/gradient_accumulation_steps.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

bool states_accumulation(const TrainerConfig& config) {
  return config.training.gradient_accumulation_steps.has_value();
}

void check_accumulation(const TrainerConfig& config, int world_size) {
  if (!states_accumulation(config)) return;
  const TrainingConfig& training = config.training;
  const int64_t stated = *training.gradient_accumulation_steps;
  const int ranks = config.grid(world_size).dp;
  require(stated > 0, "--gradient-accumulation-steps ", stated, ": at least 1");
  const int64_t follows = config.num_microbatches(ranks);
  require(follows == stated, "--gradient-accumulation-steps ", stated, ", but --global-batch-size ",
          training.global_batch_size, " with --micro-batch-size ", training.micro_batch_size, " on ", ranks,
          " data-parallel ranks makes ", follows, ": change one of them, or leave --gradient-accumulation-steps out");
}

}  // namespace

Feature gradient_accumulation_steps_feature() {
  return {
      .name = "gradient-accumulation-steps",
      .level = 0,
      .effect = "Checks that a step has so many micro-batches",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<GradientAccumulationStepsConfig>("training", config.training);
          },
      .is_active = states_accumulation,
      .rules = {excludes(
          "--gradient-accumulation-steps", states_accumulation, "--rampup-batch-size or --step-batch-size-schedule",
          [](const TrainerConfig& c) {
            return !c.training.rampup_batch_size.empty() || !c.training.step_batch_size_schedule.empty();
          },
          ", which change it")},
      .check = check_accumulation,
  };
}

}  // namespace ms::train
