#include "train/features/async_log_allreduce.h"

#include "train/config.h"

namespace ms::train {
namespace {

bool is_asynchronous(const TrainerConfig& config) { return config.parallel.async_log_allreduce; }

}  // namespace

Feature async_log_allreduce_feature() {
  return {
      .name = "async-log-allreduce",
      .level = 2,
      .effect = "Hides the sum of the loss over replicas behind the reduction of gradients",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<AsyncLogAllreduceConfig>("parallel", config.parallel); },
      .is_active = is_asynchronous,
      .rules = {excludes(
          "--async-log-allreduce", is_asynchronous, "--calculate-per-token-loss",
          [](const TrainerConfig& c) { return c.training.calculate_per_token_loss; },
          ", which divides gradients by the tokens of that sum")},
  };
}

}  // namespace ms::train
