#include "train/features/shared_memory.h"

#include "train/config.h"

namespace ms::train {

Feature shared_memory_feature() {
  return {
      .name = "shared-memory",
      .level = 0,
      .effect =
          "Lets ranks on one machine reduce gradients and activations, gather weights and exchange small data in each "
          "other's memory",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<SharedMemoryConfig>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return c.parallel.shared_memory; },
  };
}

}  // namespace ms::train
