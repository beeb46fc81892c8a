#include "train/features/weight_hash.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature weight_hash_feature() {
  return {
      .name = "weight-hash",
      .level = 0,
      .effect = "Compares the weights of data-parallel replicas to the bit",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<WeightHashConfig>("training", config.training); },
      .is_active = [](const TrainerConfig& c) { return c.training.check_weight_hash_across_dp_replicas_interval > 0; },
      .check =
          [](const TrainerConfig& config, int) {
            const int64_t interval = config.training.check_weight_hash_across_dp_replicas_interval;
            require(interval >= 0, "--check-weight-hash-across-dp-replicas-interval ", interval,
                    ": at least 1 step, or 0 for never");
          },
  };
}

}  // namespace ms::train
