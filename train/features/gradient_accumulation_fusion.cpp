#include "train/features/gradient_accumulation_fusion.h"

#include "train/config.h"

namespace ms::train {

Feature gradient_accumulation_fusion_feature() {
  return {
      .name = "gradient-accumulation-fusion",
      .level = 0,
      .effect = "Adds the weight gradients of micro-batches in fp32, within the products that compute them",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<GradientAccumulationFusionConfig>("training", config.training);
          },
      .is_active = [](const TrainerConfig& c) { return c.training.gradient_accumulation_fusion; },
  };
}

}  // namespace ms::train
