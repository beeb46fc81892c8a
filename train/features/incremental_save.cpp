#include "train/features/incremental_save.h"

#include "train/config.h"

namespace ms::train {

Feature incremental_save_feature() {
  return {
      .name = "incremental-save",
      .level = 0,
      .effect = "Writes only parts that changed since the previous save, and links the others to it",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<IncrementalSaveConfig>("checkpoint", config.checkpoint); },
      .is_active =
          [](const TrainerConfig& c) { return !c.checkpoint.save.empty() && c.checkpoint.ckpt_full_every > 0; },
  };
}

}  // namespace ms::train
