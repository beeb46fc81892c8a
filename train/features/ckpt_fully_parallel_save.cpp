#include "train/features/ckpt_fully_parallel_save.h"

#include "train/config.h"

namespace ms::train {

Feature ckpt_fully_parallel_save_feature() {
  return {
      .name = "ckpt-fully-parallel-save",
      .level = 0,
      .effect = "Divides the writing of state that data-parallel ranks hold alike among them",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<CkptFullyParallelSaveConfig>("checkpoint", config.checkpoint);
          },
      .is_active =
          [](const TrainerConfig& c) {
            return !c.checkpoint.save.empty() && c.checkpoint.ckpt_fully_parallel_save && !c.checkpoint.ckpt_gather;
          },
  };
}

}  // namespace ms::train
