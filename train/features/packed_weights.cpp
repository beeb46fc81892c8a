#include "train/features/packed_weights.h"

#include "train/config.h"

namespace ms::train {

Feature packed_weights_feature() {
  return {
      .name = "packed-weights",
      .level = 2,
      .effect =
          "Caches the weights in GEMM's order for all micro-batches of a step: faster, for the weights' memory again",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<PackedWeightsConfig>("training", config.training); },
      .is_active = [](const TrainerConfig& c) { return c.training.packed_weights; },
  };
}

}  // namespace ms::train
