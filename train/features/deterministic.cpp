#include "train/features/deterministic.h"

#include "train/config.h"

namespace ms::train {

Feature deterministic_feature() {
  return {
      .name = "deterministic",
      .level = 0,
      .effect = "Makes results independent of the number of threads",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<DeterministicConfig>("training", config.training);
            fields.alias("npu-deterministic", "deterministic", "true");
            fields.alias("deterministic-mode", "deterministic", "true");
          },
      .is_active = [](const TrainerConfig& c) { return c.training.deterministic; },
  };
}

}  // namespace ms::train
