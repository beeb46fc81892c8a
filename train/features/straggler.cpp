#include "train/features/straggler.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature straggler_feature() {
  return {
      .name = "straggler",
      .level = 0,
      .effect = "Names the rank that makes the others wait, in the log",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<StragglerConfig>("logger", config.logger); },
      .is_active = [](const TrainerConfig& c) { return c.logger.log_straggler; },
      .rules = {needs(
          "--straggler-minmax-count",
          [](const TrainerConfig& c) {
            return c.logger.straggler_minmax_count != StragglerConfig{}.straggler_minmax_count;
          },
          "--log-straggler", [](const TrainerConfig& c) { return c.logger.log_straggler; })},
      .check =
          [](const TrainerConfig& config, int) {
            const int64_t count = config.logger.straggler_minmax_count;
            require(count >= 1, "--straggler-minmax-count ", count, ": at least 1 rank");
          },
  };
}

}  // namespace ms::train
