#include "train/features/distributed_optimizer.h"

#include "train/config.h"

namespace ms::train {

Feature distributed_optimizer_feature() {
  return {
      .name = "distributed-optimizer",
      .level = 0,
      .effect =
          "Divides master weights and moments over the DP ranks: 6 + 12/DP bytes a parameter instead of 18 in bf16, "
          "for the bytes of one all-reduce",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<DistributedOptimizerConfig>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return c.parallel.use_distributed_optimizer; },
  };
}

}  // namespace ms::train
